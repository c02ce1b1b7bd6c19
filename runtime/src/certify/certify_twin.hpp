#pragma once

#include "certify/run_twin.hpp"
#include "runtime/certify/certify.hpp"

namespace meshplan::runtime {

/// Runs a twin on the first ranks of the job, then its model and batch on rank 0 alone. Collective
/// over the job's world. @returns on rank 0 with what was compared
/// @param mutate  tests only: edits the programs of the twin, not that of one rank
program::TwinResult certify_twin(const program::Twin& twin, std::uint64_t seed, const TwinJob& job,
                                 const Mutation& mutate = {});

}  // namespace meshplan::runtime
