// Runs the twins of a plan beside one rank (docs/certificates/certificate.md).
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "program/certificate/certificate.hpp"
#include "program/certificate/twin.hpp"

namespace meshplan::kernels {
class Backend;
}

namespace meshplan::runtime {

class Communicator;

/// Runs each twin on the first ranks of `world`, then the same model and batch on rank 0 alone.
/// Collective over `world`, which has as many ranks as the largest twin.
/// @param on_twin  called on every rank after each twin, with how many are done
/// @returns what rank 0 compared; nothing on the others
std::vector<program::TwinResult> certify(std::span<const program::Twin> twins, Communicator& world,
                                         kernels::Backend& backend,
                                         const std::function<void(std::size_t)>& on_twin);

}  // namespace meshplan::runtime
