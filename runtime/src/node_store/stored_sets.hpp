// Which sets of shares the stores of a job's nodes hold, and which of them is whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "node_store/node_ring.hpp"
#include "node_store/store_folder.hpp"
#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

/// The shares of one run at one step, over all nodes.
struct StoredSet {
  std::string run;
  std::int64_t step = 0;
  std::vector<std::vector<int>> nodes_of_share;  // that hold it, by rank of the job that wrote it

  /// Ranks whose share no node holds.
  std::vector<int> missing() const;
};

/// Collective: the sets of all nodes, newest first, the same on all ranks.
/// @param own  what this rank's store holds, on the rank that leads its node; else empty
std::vector<StoredSet> gathered_sets(Communicator& world, const NodeRing& ring,
                                     const std::vector<StoredShare>& own);

/// Where a share is read.
struct ShareSource {
  int node = 0;
  int server = 0;  // the rank there that reads it
};

/// Collective: reads every share of the set on some node and compares the hashes. A copy that is
/// damaged leaves the set, and the share's other copy is tried.
/// @param store  of this rank's node
/// @param faults  takes lines about what this rank finds damaged
/// @returns sources by rank of the job that wrote the set; empty if a share has no intact copy
std::vector<ShareSource> verified_sources(Communicator& world, const NodeRing& ring,
                                          const std::string& store, StoredSet& set,
                                          std::vector<std::string>& faults);

}  // namespace meshplan::runtime
