#include "node_store/node_ring.hpp"

#include <algorithm>

#include "core/index.hpp"

namespace meshplan::runtime {

NodeRing::NodeRing(const std::vector<std::string>& host_of_rank) {
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    const auto known = std::ranges::find(names_, host_of_rank[rank]);
    const auto node = static_cast<std::size_t>(known - names_.begin());
    if (known == names_.end()) {
      names_.push_back(host_of_rank[rank]);
      ranks_of_node_.emplace_back();
    }
    node_of_rank_.push_back(static_cast<int>(node));
    ranks_of_node_[node].push_back(static_cast<int>(rank));
  }
}

int NodeRing::node_of(int rank) const {
  return node_of_rank_[at(rank)];
}

const std::string& NodeRing::name(int node) const {
  return names_[at(node)];
}

const std::vector<int>& NodeRing::ranks_on(int node) const {
  return ranks_of_node_[at(node)];
}

std::optional<int> NodeRing::partner(int rank) const {
  if (num_nodes() < 2) return std::nullopt;
  const std::vector<int>& own = ranks_on(node_of(rank));
  const std::vector<int>& next = ranks_on((node_of(rank) + 1) % num_nodes());
  const auto place = static_cast<std::size_t>(std::ranges::find(own, rank) - own.begin());
  return next[place % next.size()];
}

std::vector<int> NodeRing::sources(int rank) const {
  std::vector<int> sources;
  for (int other = 0; other < static_cast<int>(node_of_rank_.size()); ++other)
    if (partner(other) == rank) sources.push_back(other);
  return sources;
}

int NodeRing::most_sources() const {
  int most = 0;
  for (int rank = 0; rank < static_cast<int>(node_of_rank_.size()); ++rank)
    most = std::max(most, static_cast<int>(sources(rank).size()));
  return most;
}

}  // namespace meshplan::runtime
