// Which ranks share a node, and which rank keeps the copy of whose state.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace meshplan::runtime {

/// Nodes in a ring, in the order of their first ranks. Several names of one machine are several
/// nodes.
class NodeRing {
 public:
  /// @param host_of_rank  JobLayout::host_of_rank
  explicit NodeRing(const std::vector<std::string>& host_of_rank);

  int num_nodes() const { return static_cast<int>(names_.size()); }
  int node_of(int rank) const;
  const std::string& name(int node) const;
  /// World ranks on a node, ascending; the first one leads: it creates and removes the store.
  const std::vector<int>& ranks_on(int node) const;
  bool leads(int rank) const { return ranks_on(node_of(rank)).front() == rank; }

  /// The rank on the next node that keeps a copy of `rank`'s share: the one with the same place
  /// among the ranks of its node, counted around. Nothing if there is one node.
  std::optional<int> partner(int rank) const;
  /// The ranks whose copies `rank` keeps, ascending.
  std::vector<int> sources(int rank) const;
  /// Of any rank, at most.
  int most_sources() const;

 private:
  std::vector<std::string> names_;
  std::vector<int> node_of_rank_;
  std::vector<std::vector<int>> ranks_of_node_;
};

}  // namespace meshplan::runtime
