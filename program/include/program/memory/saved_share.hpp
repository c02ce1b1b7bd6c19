// Which elements of the training state each rank saves, and how many bytes these are: the same
// answer for the runtime, which copies them, and for predictions of what saving costs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/memory/saved_state.hpp"
#include "program/plan/mesh.hpp"
#include "program/zero/zero.hpp"

namespace meshplan::program {

/// The place of a rank among those that save a model.
struct SaverPlace {
  Coordinates coordinates;
  ShardPlace shard = {};
  int dense_replica = 0;   // among the ranks that hold the same dense parameters
  int expert_replica = 0;  // among those that hold the same experts
};
SaverPlace saver_place(const Plan& plan, int rank);

/// A run of the flat parameters that a rank saves, from element `position` of its snapshot on, and
/// where it lies in a region.
struct SnapshotRun {
  FlatRange range;
  std::int64_t offset = 0;
  std::int64_t position = 0;
};

/// What this rank saves of a state. It saves all that its own compression lost. Other states are
/// divided equally among the replicas, so that all of them write; with ZeRO a rank saves what it
/// owns, in hybrid sharding an equal part of that for each rank that owns the same.
std::vector<SnapshotRun> snapshot_runs(const Program& program, const StateRegion& state,
                                       const SaverPlace& place);

/// What the compression of gradients lost, by the number of the rank among those that sum a
/// parameter's, and of the sums. Which rank adds it to its next gradients does not change the sum
/// over all ranks.
std::string compression_error_state(int replica);
constexpr const char* kSumErrorState = "sum_error";

/// What a rank saves: state_regions, and what its compression lost.
std::vector<StateRegion> saved_states(const Program& program, const SaverPlace& place);

/// Elements of `range` that the rank saves: what it holds, less padding, tied copies, and what a
/// lower tp rank (of experts, a lower etp rank) holds too.
std::int64_t saved_elements(const Program& program, const Coordinates& place, FlatRange range);

/// Sets of a share that the memory of a node keeps (docs/checkpoints.md): two complete ones, and
/// the one that is written.
constexpr int kSharesKept = 3;
/// States of a rank's size that lie in its node's memory: of its own, and of a rank of another
/// node.
constexpr int kept_states(int num_nodes) {
  return num_nodes > 1 ? 2 * kSharesKept : kSharesKept;
}

/// Bytes of fp32 elements that ranks save at once. Headers of files are not counted.
struct SavedBytes {
  std::int64_t all_ranks = 0;
  std::int64_t fullest_rank = 0;
};
/// Of the ranks of the program's stage.
SavedBytes saved_bytes(const Program& program);
/// Of all ranks. @param programs  of all stages
SavedBytes saved_bytes(const std::vector<Program>& programs);

}  // namespace meshplan::program
