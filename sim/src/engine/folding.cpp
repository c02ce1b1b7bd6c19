#include "engine/folding.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "clusters/node_types.hpp"
#include "core/hash.hpp"
#include "core/index.hpp"

namespace meshplan::sim {
namespace {

using program::Group;
using program::Mesh;

struct HashInts {
  std::size_t operator()(const std::vector<int>& values) const {
    return content_hash(std::as_bytes(std::span(values)));
  }
};
struct HashPair {
  std::size_t operator()(const std::pair<int, int>& pair) const {
    return content_hash(std::as_bytes(std::span(&pair, 1)));
  }
};

/// Numbers different values in the order in which they come.
template <class Value, class Hash>
class Numbering {
 public:
  int of(const Value& value) {
    return numbers_.try_emplace(value, static_cast<int>(numbers_.size())).first->second;
  }
  int size() const { return static_cast<int>(numbers_.size()); }

 private:
  std::unordered_map<Value, int, Hash> numbers_;
};

/// Sets of ranks that have something in common, one after the other, and what that is.
struct Companies {
  std::vector<int> ranks;
  std::vector<std::size_t> ends;  // of each set in `ranks`
  std::vector<int> kinds;

  void add(const std::vector<int>& set, int kind) {
    ranks.insert(ranks.end(), set.begin(), set.end());
    ends.push_back(ranks.size());
    kinds.push_back(kind);
  }
};

class Refinement {
 public:
  Refinement(const Mesh& mesh, const Cluster& cluster) : mesh_(mesh), cluster_(cluster) {
    for (int rank = 0; rank < mesh.world_size(); ++rank)
      classes_.push_back(mesh.coordinates(rank).pp);
    std::vector<int> types;
    for (int rank = 0; rank < mesh.world_size(); ++rank) types.push_back(node_type(cluster, rank));
    divide(types);
  }

  void add_group(Group group) {
    if (mesh_.group_size(group) == 1) return;
    std::vector<GroupPlacement> kinds;
    companies_.emplace_back();
    for (const std::vector<int>& ranks : mesh_.groups(group)) {
      const GroupPlacement placement = place(cluster_, ranks);
      auto known = std::ranges::find(kinds, placement);
      if (known == kinds.end()) known = kinds.insert(known, placement);
      companies_.back().add(ranks, static_cast<int>(known - kinds.begin()));
    }
  }

  /// Ranks that share something with their neighbours in rank order.
  void add_domains(int span) {
    if (span <= 1) return;
    companies_.emplace_back();
    for (int begin = 0; begin < mesh_.world_size(); begin += span) {
      std::vector<int> ranks(at(std::min(span, mesh_.world_size() - begin)));
      std::iota(ranks.begin(), ranks.end(), begin);
      companies_.back().add(ranks, 0);
    }
  }

  std::vector<int> run() {
    find_neighbours();
    for (int before = 0; num_classes_ > before;) {
      before = num_classes_;
      refine();
    }
    return std::move(classes_);
  }

 private:
  /// The next and the previous stage's rank with the same other coordinates, around the ring, for
  /// with several chunks a rank the last stage may send to the first one.
  void find_neighbours() {
    const int pp = mesh_.config().pp;
    if (pp == 1) return;
    for (int rank = 0; rank < mesh_.world_size(); ++rank)
      for (const bool next : {true, false}) {
        program::Coordinates c = mesh_.coordinates(rank);
        const bool around = c.pp == (next ? pp - 1 : 0);
        c.pp = (c.pp + (next ? 1 : pp - 1)) % pp;
        const bool meets = !around || mesh_.config().vpp > 1;
        const int other = meets ? mesh_.rank_of(c) : rank;
        Neighbours& neighbours = next ? next_ : previous_;
        neighbours.ranks.push_back(other);
        neighbours.distances.push_back(meets ? level_between(cluster_, rank, other) : 0);
      }
  }

  /// Ranks stay in one class if they have the same of this, too.
  void divide(const std::vector<int>& seen) {
    Numbering<std::pair<int, int>, HashPair> numbering;
    for (std::size_t rank = 0; rank < classes_.size(); ++rank)
      classes_[rank] = numbering.of({classes_[rank], seen[rank]});
    num_classes_ = numbering.size();
  }

  void refine() {
    const std::vector<int> before = classes_;
    std::vector<int> seen(before.size());
    for (const Neighbours* neighbours : {&next_, &previous_}) {
      if (neighbours->ranks.empty()) continue;
      for (std::size_t rank = 0; rank < before.size(); ++rank)
        seen[rank] = before[at(neighbours->ranks[rank])];
      divide(seen);
      divide(neighbours->distances);
    }
    for (const Companies& companies : companies_) {
      Numbering<std::vector<int>, HashInts> numbering;
      std::ranges::fill(seen, -1);  // of ranks that are in no such group
      std::size_t begin = 0;
      for (std::size_t set = 0; set < companies.ends.size(); ++set) {
        const auto ranks = std::span(companies.ranks).subspan(begin, companies.ends[set] - begin);
        std::vector<int> classes;
        for (const int rank : ranks) classes.push_back(before[at(rank)]);
        std::ranges::sort(classes);
        classes.push_back(companies.kinds[set]);
        const int number = numbering.of(classes);
        for (const int rank : ranks) seen[at(rank)] = number;
        begin = companies.ends[set];
      }
      divide(seen);
    }
  }

  struct Neighbours {  // of every rank, in one direction; empty if there is one stage
    std::vector<int> ranks;
    std::vector<int> distances;  // fabric levels
  };

  const Mesh& mesh_;
  const Cluster& cluster_;
  std::vector<int> classes_;
  int num_classes_ = 0;
  std::vector<Companies> companies_;
  Neighbours next_;
  Neighbours previous_;
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
