#pragma once

#include <functional>
#include <string>

#include "kernels/product_tuning.hpp"
#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

/// Gives all ranks the same kernel for the same matrix product, so that they round alike. What a
/// file in `folder` knows is taken from there, as rank 0 reads it; what it lacks, the lowest rank
/// that has the product times, alone, and all others take over; rank 0 then replaces the file, in
/// one piece. The file's name is the GPU's and the library's version. A file that is damaged, or
/// not for these, is not read; `log` says so, on rank 0.
/// Collective over `world`, before the first step.
/// @throws IoError if the folder or the file cannot be written
void agree_on_products(kernels::ProductTuning& tuning, Communicator& world,
                       const std::string& folder,
                       const std::function<void(const std::string&)>& log);

}  // namespace meshplan::runtime
