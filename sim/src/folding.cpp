#include "folding.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "core/hash.hpp"
#include "core/index.hpp"
#include "node_types.hpp"

namespace meshplan::sim {
namespace {

using program::Group;
using program::Mesh;

struct HashInts {
  std::size_t operator()(const std::vector<int>& values) const {
    return content_hash(std::as_bytes(std::span(values)));
  }
};

/// Numbers different values in the order in which they come.
class Numbering {
 public:
  int of(const std::vector<int>& value) {
    return numbers_.try_emplace(value, static_cast<int>(numbers_.size())).first->second;
  }
  int size() const { return static_cast<int>(numbers_.size()); }

 private:
  std::unordered_map<std::vector<int>, int, HashInts> numbers_;
};

/// Ranks that have something in common, and what that is.
struct Company {
  std::vector<int> ranks;
  int kind = 0;
};

class Refinement {
 public:
  Refinement(const Mesh& mesh, const Cluster& cluster) : mesh_(mesh), cluster_(cluster) {
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      coordinates_.push_back(mesh.coordinates(rank));
      const std::vector<int> own{coordinates_.back().pp, node_type(cluster, rank)};
      classes_.push_back(numbering_.of(own));
    }
    num_classes_ = numbering_.size();
  }

  void add_group(Group group) {
    if (mesh_.group_size(group) == 1) return;
    std::vector<GroupPlacement> kinds;
    companies_.emplace_back();
    for (std::vector<int>& ranks : mesh_.groups(group)) {
      const GroupPlacement placement = place(cluster_, ranks);
      auto known = std::ranges::find(kinds, placement);
      if (known == kinds.end()) known = kinds.insert(known, placement);
      companies_.back().push_back({std::move(ranks), static_cast<int>(known - kinds.begin())});
    }
  }

  /// Ranks that share something with their neighbours in rank order.
  void add_domains(int span) {
    if (span <= 1) return;
    companies_.emplace_back();
    for (int begin = 0; begin < mesh_.world_size(); begin += span) {
      std::vector<int> ranks(at(std::min(span, mesh_.world_size() - begin)));
      std::iota(ranks.begin(), ranks.end(), begin);
      companies_.back().push_back({std::move(ranks), 0});
    }
  }

  std::vector<int> run() {
    find_neighbours();
    while (true) {
      refine();
      if (numbering_.size() == num_classes_) return std::move(classes_);
      num_classes_ = numbering_.size();
    }
  }

 private:
  /// The next and the previous stage's rank with the same other coordinates, around the ring, for
  /// with several chunks a rank the last stage may send to the first one.
  void find_neighbours() {
    const int pp = mesh_.config().pp;
    if (pp == 1) return;
    for (int rank = 0; rank < mesh_.world_size(); ++rank)
      for (const bool next : {true, false}) {
        program::Coordinates c = coordinates_[at(rank)];
        const bool around = c.pp == (next ? pp - 1 : 0);
        c.pp = (c.pp + (next ? 1 : pp - 1)) % pp;
        const bool meets = !around || mesh_.config().vpp > 1;
        const int other = mesh_.rank_of(c);
        neighbours_.push_back(meets ? other : rank);
        distances_.push_back(meets ? level_between(cluster_, rank, other) : 0);
      }
  }

  void refine() {
    std::vector<std::vector<int>> seen(classes_.size());
    for (std::size_t rank = 0; rank < classes_.size(); ++rank) {
      seen[rank].push_back(classes_[rank]);
      for (std::size_t n = 2 * rank; n < std::min(2 * rank + 2, neighbours_.size()); ++n) {
        seen[rank].push_back(classes_[at(neighbours_[n])]);
        seen[rank].push_back(distances_[n]);
      }
    }
    for (const std::vector<Company>& kind : companies_) {
      Numbering companies;
      for (const Company& company : kind) {
        std::vector<int> classes;
        for (const int rank : company.ranks) classes.push_back(classes_[at(rank)]);
        std::ranges::sort(classes);
        classes.push_back(company.kind);
        const int number = companies.of(classes);
        for (const int rank : company.ranks) seen[at(rank)].push_back(number);
      }
    }
    numbering_ = {};
    for (std::size_t rank = 0; rank < classes_.size(); ++rank)
      classes_[rank] = numbering_.of(seen[rank]);
  }

  const Mesh& mesh_;
  const Cluster& cluster_;
  std::vector<program::Coordinates> coordinates_;
  std::vector<int> classes_;
  Numbering numbering_;
  int num_classes_ = 0;
  std::vector<std::vector<Company>> companies_;
  std::vector<int> neighbours_;  // two of each rank, if there are several stages
  std::vector<int> distances_;   // fabric levels
};

/// Numbers of ranks that share a link or a host.
std::set<int> shared_spans(const Cluster& cluster) {
  std::set<int> spans;
  if (cluster.device.kind == DeviceKind::Cpu) spans.insert(cluster.devices_per_node);
  for (const FabricLevel& level : cluster.fabric) spans.insert(level.ranks_per_link);
  for (const OtherNodes& nodes : cluster.other_nodes)
    for (const FabricLevel& level : nodes.inside) spans.insert(level.ranks_per_link);
  return spans;
}

}  // namespace

Folding::Folding(const Mesh& mesh, const Cluster& cluster, const std::vector<Group>& groups,
                 bool fold) {
  if (fold) {
    Refinement refinement(mesh, cluster);
    for (const Group group : groups) refinement.add_group(group);
    for (const int span : shared_spans(cluster)) refinement.add_domains(span);
    class_of_ = refinement.run();
  } else {
    class_of_.resize(static_cast<std::size_t>(mesh.world_size()));
    std::iota(class_of_.begin(), class_of_.end(), 0);
  }
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const auto of_class = at(class_of(rank));
    if (of_class == members_.size()) members_.emplace_back();
    members_[of_class].push_back(rank);
  }
}

std::vector<int> Folding::classes_of(const std::vector<int>& ranks) const {
  std::vector<int> classes;
  for (const int rank : ranks) classes.push_back(class_of(rank));
  std::ranges::sort(classes);
  classes.erase(std::ranges::unique(classes).begin(), classes.end());
  return classes;
}

std::vector<int> Folding::company(int of_class, int span) const {
  const int begin = representative(of_class) / span * span;
  const int end = std::min(begin + span, static_cast<int>(class_of_.size()));
  std::vector<int> classes(class_of_.begin() + begin, class_of_.begin() + end);
  std::ranges::sort(classes);
  return classes;
}

int Folding::multiplicity(int of_class, int span) const {
  return static_cast<int>(std::ranges::count(company(of_class, span), of_class));
}

}  // namespace meshplan::sim
