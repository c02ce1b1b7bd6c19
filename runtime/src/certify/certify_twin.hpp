#pragma once

#include <map>
#include <memory>

#include "certify/run_twin.hpp"
#include "runtime/certify/certify.hpp"

namespace meshplan::runtime {

/// The communicators of twins, each made once: MPI takes its time over a new one.
class TwinGroups {
 public:
  explicit TwinGroups(Communicator& world) : world_(world) {}
  /// The first ranks of the world; null on the others. Collective over the world.
  Communicator* first_ranks(int count);

 private:
  Communicator& world_;
  std::map<int, std::unique_ptr<Communicator>> groups_;  // by how many ranks
};

/// Runs a twin on the first ranks of the job, then its model and batch on rank 0 alone. Collective
/// over the job's world. @returns on rank 0 with what was compared
/// @param mutate  tests only: edits the programs of the twin, not that of one rank
program::TwinResult certify_twin(const program::Twin& twin, std::uint64_t seed, const TwinJob& job,
                                 TwinGroups& groups, const Mutation& mutate = {});

}  // namespace meshplan::runtime
