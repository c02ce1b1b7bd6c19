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
class StatusBoard;

/// What a rank runs twins with.
struct TwinJob {
  Communicator& world;
  kernels::Backend& backend;
  StatusBoard* status = nullptr;  // may be null
};

/// Runs each twin on the first ranks of the job, then the same model and batch on rank 0 alone.
/// Collective over the job's world, which has as many ranks as the largest twin.
/// @param on_twin  called on every rank after each twin, with how many are done
/// @returns what rank 0 compared; nothing on the others
std::vector<program::TwinResult> certify(std::span<const program::Twin> twins, const TwinJob& job,
                                         const std::function<void(std::size_t)>& on_twin);

}  // namespace meshplan::runtime
