#include <algorithm>
#include <optional>

#include "world.hpp"

namespace meshplan::sim {

using program::Coordinates;
using program::Group;

Folding::Folding(const program::Mesh& mesh, const Cluster& cluster)
    : mesh_(mesh), cluster_(cluster) {
  for (int rank = 0; rank < mesh.world_size(); ++rank)
    coordinates_.push_back(mesh.coordinates(rank));
  for (int stage = 0; stage < mesh.config().pp; ++stage)
    representatives_.push_back(mesh.rank_of({.pp = stage}));
}

bool Folding::same_placements(Group group) const {
  if (mesh_.group_size(group) == 1) return true;
  std::vector<std::optional<GroupPlacement>> of_stage(static_cast<std::size_t>(mesh_.config().pp));
  for (const std::vector<int>& ranks : mesh_.groups(group)) {
    const GroupPlacement placement = place(cluster_, ranks);
    for (const int rank : ranks) {
      auto& expected =
          of_stage[static_cast<std::size_t>(coordinates_[static_cast<std::size_t>(rank)].pp)];
      if (!expected) expected = placement;
      if (*expected != placement) return false;
    }
  }
  return true;
}

bool Folding::same_neighbours() const {
  for (int rank = 0; rank < mesh_.world_size(); ++rank) {
    Coordinates c = coordinates_[static_cast<std::size_t>(rank)];
    // With several chunks a rank the last stage may send to the first one.
    const bool last = c.pp + 1 == mesh_.config().pp;
    if (last && mesh_.config().vpp == 1) continue;
    const int next = last ? 0 : c.pp + 1;
    const int from = representative(c.pp), to = representative(next);
    c.pp = next;
    if (level_between(cluster_, rank, mesh_.rank_of(c)) != level_between(cluster_, from, to))
      return false;
  }
  return true;
}

std::vector<int> Folding::company(int rank, int span) const {
  std::vector<int> per_stage(static_cast<std::size_t>(mesh_.config().pp), 0);
  const int begin = rank / span * span;
  for (int other = begin; other < std::min(begin + span, mesh_.world_size()); ++other)
    ++per_stage[static_cast<std::size_t>(coordinates_[static_cast<std::size_t>(other)].pp)];
  return per_stage;
}

/// Every domain of `span` ranks that holds a stage holds the same stages in the same numbers as the
/// domain of its representative, and representatives that should share a domain do.
bool Folding::same_company(int span) const {
  for (int rank = 0; rank < mesh_.world_size(); rank += span) {
    const std::vector<int> here = company(rank, span);
    for (std::size_t stage = 0; stage < here.size(); ++stage) {
      if (here[stage] == 0) continue;
      const int own = representatives_[stage];
      if (company(own, span) != here) return false;
      for (std::size_t other = 0; other < here.size(); ++other)
        if (here[other] > 0 && representatives_[other] / span != own / span) return false;
    }
  }
  return true;
}

bool Folding::same_devices() const {
  if (cluster_.other_nodes.empty()) return true;
  for (int rank = 0; rank < mesh_.world_size(); ++rank) {
    const int stage = coordinates_[static_cast<std::size_t>(rank)].pp;
    if (node_type(cluster_, rank) != node_type(cluster_, representative(stage))) return false;
  }
  return true;
}

bool Folding::is_exact(const std::vector<Group>& groups) const {
  if (!same_devices()) return false;
  if (!same_neighbours()) return false;
  for (const Group group : groups)
    if (!same_placements(group)) return false;
  if (cluster_.device.kind == DeviceKind::Cpu && !same_company(cluster_.devices_per_node))
    return false;
  const auto shares_alike = [&](const FabricLevel& level) {
    return level.ranks_per_link <= 1 || same_company(level.ranks_per_link);
  };
  return std::ranges::all_of(cluster_.fabric, shares_alike) &&
         std::ranges::all_of(cluster_.other_nodes, [&](const OtherNodes& nodes) {
           return std::ranges::all_of(nodes.inside, shares_alike);
         });
}

int Folding::multiplicity(int stage, int span) const {
  return company(representative(stage), span)[static_cast<std::size_t>(stage)];
}

}  // namespace meshplan::sim
