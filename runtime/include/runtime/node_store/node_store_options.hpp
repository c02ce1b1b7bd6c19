#pragma once

#include <string>
#include <vector>

#include "program/memory/saved_share.hpp"

namespace meshplan::runtime {

/// Copies of the state in the memory of the job's nodes (docs/checkpoints.md).
struct NodeStoreOptions {
  int every = 0;                   // steps; 0 = none are kept
  bool is_resumed = false;         // a run that continues takes a state from there if it is newer
  std::vector<std::string> nodes;  // of each rank, by name: JobLayout::host_of_rank
  std::string root = "/dev/shm";   // where shared memory is mounted
};

using program::kept_states;
using program::kSharesKept;

}  // namespace meshplan::runtime
