#include <algorithm>
#include <map>
#include <optional>

#include "world.hpp"

namespace meshplan::sim {
namespace {

using program::Coordinates;
using program::Group;

/// Identifies the group of a rank: its coordinates with the varied axes set to 0,
/// or to the number of the part of an axis that the group is.
std::array<int, 7> group_key(const Coordinates& c, Group group, int kv_copies) {
  switch (group) {
    case Group::Tp:
      return {0, c.cp, c.dp, c.pp};
    case Group::Cp:
      return {c.tp, 0, c.dp, c.pp};
    case Group::Dp:
      return {c.tp, c.cp, 0, c.pp};
    case Group::Pp:
    case Group::Embedding:
      return {c.tp, c.cp, c.dp, 0};
    case Group::TpPp:
      return {0, c.cp, c.dp, 0};
    case Group::DpCp:
      return {c.tp, 0, 0, c.pp};
    case Group::World:
      return {};
    case Group::Ep:
      return {0, 0, 0, c.pp, c.etp, 0, c.edp};
    case Group::Etp:
      return {0, 0, 0, c.pp, 0, c.ep, c.edp};
    case Group::ExpertDp:
      return {0, 0, 0, c.pp, c.etp, c.ep, 0};
    case Group::KvCopies:
      return {c.tp / kv_copies, c.cp, c.dp, c.pp};
    case Group::ZeroShards:
    case Group::ZeroReplicas:
    case Group::ExpertZeroShards:
    case Group::ExpertZeroReplicas:
      break;  // by their place in another group, which the mesh knows
  }
  return {};
}

}  // namespace

Folding::Folding(const program::Mesh& mesh, const Cluster& cluster)
    : mesh_(mesh), cluster_(cluster) {
  for (int rank = 0; rank < mesh.world_size(); ++rank)
    coordinates_.push_back(mesh.coordinates(rank));
  for (int stage = 0; stage < mesh.config().pp; ++stage)
    representatives_.push_back(mesh.rank_of({.pp = stage}));
}

std::vector<std::vector<int>> Folding::groups(Group group) const {
  if (group == Group::ZeroShards || group == Group::ZeroReplicas ||
      group == Group::ExpertZeroShards || group == Group::ExpertZeroReplicas)
    return mesh_.groups(group);
  std::map<std::array<int, 7>, std::vector<int>> by_key;
  const int last = mesh_.config().pp - 1;
  for (int rank = 0; rank < mesh_.world_size(); ++rank) {
    const Coordinates& c = coordinates_[static_cast<std::size_t>(rank)];
    if (group == Group::Embedding && c.pp != 0 && c.pp != last) continue;
    by_key[group_key(c, group, mesh_.kv_copies())].push_back(rank);
  }
  std::vector<std::vector<int>> all;
  for (auto& [key, ranks] : by_key) all.push_back(std::move(ranks));
  return all;
}

bool Folding::same_placements(Group group) const {
  std::vector<std::optional<GroupPlacement>> of_stage(static_cast<std::size_t>(mesh_.config().pp));
  for (const std::vector<int>& ranks : groups(group)) {
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
    if (place(cluster_, {rank, mesh_.rank_of(c)}).level != place(cluster_, {from, to}).level)
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
