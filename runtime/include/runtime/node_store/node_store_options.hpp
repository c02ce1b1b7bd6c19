#pragma once

#include <string>
#include <vector>

namespace meshplan::runtime {

/// Copies of the state in the memory of the job's nodes (docs/checkpoints.md).
struct NodeStoreOptions {
  int every = 0;                   // steps; 0 = none are kept
  bool is_resumed = false;         // a run that continues takes a state from there if it is newer
  std::vector<std::string> nodes;  // of each rank, by name: JobLayout::host_of_rank
  std::string root = "/dev/shm";   // where shared memory is mounted
};

/// Sets of a share that a store keeps: two complete ones, and the one that is written.
constexpr int kSharesKept = 3;

/// States of a rank's size that lie in its node's memory: of its own, and of a rank of another node.
constexpr int kept_states(int num_nodes) {
  return num_nodes > 1 ? 2 * kSharesKept : kSharesKept;
}

}  // namespace meshplan::runtime
