#pragma once

#include "certify/run_twin.hpp"
#include "program/certificate/certificate.hpp"
#include "program/certificate/twin.hpp"

namespace meshplan::runtime {

/// Runs a twin on the first ranks of `world`, then its model and batch on rank 0 alone. Collective
/// over `world`. @returns on rank 0 with what was compared
/// @param mutate  tests only: edits the programs of the twin, not that of one rank
program::TwinResult certify_twin(const program::Twin& twin, std::uint64_t seed, Communicator& world,
                                 kernels::Backend& backend, const Mutation& mutate = {});

}  // namespace meshplan::runtime
