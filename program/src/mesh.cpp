#include "program/mesh.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <numeric>
#include <ranges>
#include <string_view>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "program/plan.hpp"

namespace meshplan::program {
namespace {

constexpr std::array<std::pair<Axis, std::string_view>, 5> kAxisNames = {
    {{Axis::Tp, "tp"}, {Axis::Cp, "cp"}, {Axis::Ep, "ep"}, {Axis::Dp, "dp"}, {Axis::Pp, "pp"}}};

std::vector<Axis> parse_order(const std::string& order) {
  std::vector<Axis> axes;
  std::size_t begin = 0;
  while (begin <= order.size()) {
    const std::size_t end = std::min(order.find('-', begin), order.size());
    const std::string_view name = std::string_view(order).substr(begin, end - begin);
    const auto found =
        std::ranges::find(kAxisNames, name, &std::pair<Axis, std::string_view>::second);
    if (found == kAxisNames.end() || std::ranges::find(axes, found->first) != axes.end()) {
      axes.clear();
      break;
    }
    axes.push_back(found->first);
    begin = end + 1;
  }
  if (axes.size() != kAxisNames.size())
    throw ConfigError(
        fmt::format("rank order '{}' must name each of tp, cp, ep, dp, pp once, innermost first; "
                    "for example '{}'",
                    order, Mesh::kDefaultOrder));
  return axes;
}

// One coordinate and its degree on the dense or the expert grid.
struct AxisView {
  int Coordinates::*coordinate;  // null: the axis is not on that grid
  int degree;
};

AxisView dense_axis(Axis axis, const ParallelConfig& config) {
  switch (axis) {
    case Axis::Tp:
      return {&Coordinates::tp, config.tp};
    case Axis::Cp:
      return {&Coordinates::cp, config.cp};
    case Axis::Dp:
      return {&Coordinates::dp, config.dp};
    case Axis::Pp:
      return {&Coordinates::pp, config.pp};
    case Axis::Ep:
      break;
  }
  return {nullptr, 1};
}

AxisView expert_axis(Axis axis, const ParallelConfig& config) {
  switch (axis) {
    case Axis::Tp:
      return {&Coordinates::etp, config.etp};
    case Axis::Ep:
      return {&Coordinates::ep, config.ep};
    case Axis::Dp:
      return {&Coordinates::edp, config.edp()};
    case Axis::Pp:
      return {&Coordinates::pp, config.pp};
    case Axis::Cp:
      break;
  }
  return {nullptr, 1};
}

// The coordinates that a group varies.
std::vector<int Coordinates::*> varied(Group group) {
  switch (group) {
    case Group::Tp:
    case Group::KvCopies:
      return {&Coordinates::tp};
    case Group::Cp:
      return {&Coordinates::cp};
    case Group::Dp:
      return {&Coordinates::dp};
    case Group::Pp:
    case Group::Embedding:
      return {&Coordinates::pp};
    case Group::TpPp:
      return {&Coordinates::tp, &Coordinates::pp};
    case Group::DpCp:
      return {&Coordinates::dp, &Coordinates::cp};
    case Group::World:
      return {&Coordinates::tp, &Coordinates::cp, &Coordinates::dp, &Coordinates::pp};
    case Group::Ep:
      return {&Coordinates::ep};
    case Group::Etp:
      return {&Coordinates::etp};
    case Group::ExpertDp:
      return {&Coordinates::edp};
    case Group::ZeroShards:
    case Group::ZeroReplicas:
    case Group::ExpertZeroShards:
    case Group::ExpertZeroReplicas:
      break;
  }
  throw InvariantError("group without axes");
}

bool varies(Group group, int Coordinates::*coordinate) {
  const auto axes = varied(group);
  return std::ranges::find(axes, coordinate) != axes.end();
}

/// The group that hybrid sharding divides, if this is a part of one.
std::optional<Group> divided_group(Group part) {
  if (part == Group::ZeroShards || part == Group::ZeroReplicas) return Group::DpCp;
  if (part == Group::ExpertZeroShards || part == Group::ExpertZeroReplicas) return Group::ExpertDp;
  return std::nullopt;
}

/// Ranks of a group of `size` that share one copy of what ZeRO shards. A group of experts that the
/// asked number does not divide takes the largest number that divides both.
int shard_ranks(int size, int zero_shard_group) {
  return zero_shard_group == 0 ? size : std::gcd(size, zero_shard_group);
}

bool on_expert_grid(Group group) {
  return group == Group::Ep || group == Group::Etp || group == Group::ExpertDp;
}

}  // namespace

Mesh::Mesh(const ParallelConfig& config, const std::string& order, int kv_copies,
           int zero_shard_group)
    : config_(config),
      order_(parse_order(order)),
      kv_copies_(kv_copies),
      zero_shard_group_(zero_shard_group) {
  require_invariant(kv_copies >= 1, "a head is held by some rank");
  const std::array<std::pair<const char*, int>, 7> degrees = {{{"tp", config.tp},
                                                               {"cp", config.cp},
                                                               {"pp", config.pp},
                                                               {"vpp", config.vpp},
                                                               {"dp", config.dp},
                                                               {"ep", config.ep},
                                                               {"etp", config.etp}}};
  for (const auto& [name, degree] : degrees)
    if (degree < 1)
      throw ConfigError(fmt::format("{} = {}: a degree must be at least 1", name, degree));
  // Degrees are below 2^31, so a product of two fits; one of all might not.
  const double world = static_cast<double>(config.tp) * config.cp * config.dp * config.pp;
  if (world > static_cast<double>(limits::kRanks))
    throw ConfigError(
        fmt::format("tp({}) * cp({}) * pp({}) * dp({}) = {:.6g} ranks; at most {} "
                    "are supported",
                    config.tp, config.cp, config.pp, config.dp, world, limits::kRanks));
  const int stage_ranks = config.tp * config.cp * config.dp;
  const std::int64_t expert_ranks = std::int64_t{config.etp} * config.ep;
  if (stage_ranks % expert_ranks == 0) return;
  const bool etp_fits = stage_ranks % config.etp == 0;
  throw ConfigError(fmt::format(
      "etp({}) * ep({}) = {} does not divide tp({}) * cp({}) * dp({}) = {}; nearest {}: {}",
      config.etp, config.ep, expert_ranks, config.tp, config.cp, config.dp, stage_ranks,
      etp_fits ? "ep" : "etp",
      etp_fits ? nearest_divisor(stage_ranks / config.etp, config.ep)
               : nearest_divisor(stage_ranks, config.etp)));
}

Coordinates Mesh::coordinates(int rank) const {
  require_invariant(rank >= 0 && rank < world_size(), "rank outside the mesh");
  Coordinates coordinates;
  int rest = rank;
  int stage_index = 0;  // place among the ranks of the same stage, which both grids number alike
  int stage_stride = 1;
  for (const Axis axis : order_) {
    const AxisView view = dense_axis(axis, config_);
    if (view.coordinate == nullptr) continue;
    coordinates.*view.coordinate = rest % view.degree;
    rest /= view.degree;
    if (axis == Axis::Pp) continue;
    stage_index += coordinates.*view.coordinate * stage_stride;
    stage_stride *= view.degree;
  }
  for (const Axis axis : order_) {
    const AxisView view = expert_axis(axis, config_);
    if (view.coordinate == nullptr || axis == Axis::Pp) continue;
    coordinates.*view.coordinate = stage_index % view.degree;
    stage_index /= view.degree;
  }
  return coordinates;
}

int Mesh::rank_of(const Coordinates& coordinates) const {
  int rank = 0;
  int stride = 1;
  for (const Axis axis : order_) {
    const AxisView view = dense_axis(axis, config_);
    if (view.coordinate == nullptr) continue;
    rank += coordinates.*view.coordinate * stride;
    stride *= view.degree;
  }
  return rank;
}

// The rank of an expert place: by its index within the stage, like coordinates().
int Mesh::rank_of_expert(const Coordinates& expert) const {
  int stage_index = 0;
  int stride = 1;
  for (const Axis axis : order_) {
    const AxisView view = expert_axis(axis, config_);
    if (view.coordinate == nullptr || axis == Axis::Pp) continue;
    stage_index += expert.*view.coordinate * stride;
    stride *= view.degree;
  }
  Coordinates dense{.pp = expert.pp};
  for (const Axis axis : order_) {
    const AxisView view = dense_axis(axis, config_);
    if (view.coordinate == nullptr || axis == Axis::Pp) continue;
    dense.*view.coordinate = stage_index % view.degree;
    stage_index /= view.degree;
  }
  return rank_of(dense);
}

/// Of the ranks of the divided group, in order: runs of neighbours, or every so manieth.
std::vector<int> Mesh::zero_group(Group part, int rank) const {
  const std::vector<int> all = group(*divided_group(part), rank);
  const int shards = shard_ranks(static_cast<int>(all.size()), zero_shard_group_);
  const auto own = static_cast<int>(std::ranges::find(all, rank) - all.begin());
  const bool same_run = part == Group::ZeroShards || part == Group::ExpertZeroShards;
  std::vector<int> members;
  for (int i = 0; i < static_cast<int>(all.size()); ++i)
    if (same_run ? i / shards == own / shards : i % shards == own % shards)
      members.push_back(all[static_cast<std::size_t>(i)]);
  return members;
}

std::vector<int> Mesh::group(Group group, int rank) const {
  if (divided_group(group)) return zero_group(group, rank);
  const bool expert = on_expert_grid(group);
  const int last_stage = config_.pp - 1;
  std::vector<Coordinates> places = {coordinates(rank)};
  const int own_stage = places.front().pp;
  const int own_tp = places.front().tp;
  if (group == Group::Embedding && own_stage != 0 && own_stage != last_stage) return {rank};
  for (const Axis axis : std::views::reverse(order_)) {  // outermost first, so that ranks ascend
    const AxisView view = expert ? expert_axis(axis, config_) : dense_axis(axis, config_);
    if (view.coordinate == nullptr || !varies(group, view.coordinate)) continue;
    std::vector<Coordinates> spread;
    spread.reserve(places.size() * static_cast<std::size_t>(view.degree));
    for (Coordinates place : places)
      for (int value = 0; value < view.degree; ++value) {
        if (group == Group::Embedding && value != 0 && value != last_stage) continue;
        if (group == Group::KvCopies && value / kv_copies_ != own_tp / kv_copies_) continue;
        place.*view.coordinate = value;
        spread.push_back(place);
      }
    places = std::move(spread);
  }
  std::vector<int> members;
  members.reserve(places.size());
  for (const Coordinates& place : places)
    members.push_back(expert ? rank_of_expert(place) : rank_of(place));
  return members;
}

std::vector<std::vector<int>> Mesh::groups(Group which) const {
  std::vector<std::vector<int>> all;
  std::vector<bool> seen(static_cast<std::size_t>(world_size()), false);
  for (int rank = 0; rank < world_size(); ++rank) {
    if (seen[static_cast<std::size_t>(rank)]) continue;
    all.push_back(group(which, rank));
    for (const int member : all.back()) seen[static_cast<std::size_t>(member)] = true;
  }
  return all;
}

int kv_copies(const Plan& plan) {
  const int heads = plan.model.num_kv_heads;
  return heads > 0 && plan.parallel.tp > heads ? plan.parallel.tp / heads : 1;
}

Mesh mesh_of(const Plan& plan) {
  return Mesh(plan.parallel, plan.rank_order, kv_copies(plan), plan.zero_shard_group);
}

std::string_view name_of(Group group) {
  switch (group) {
    case Group::Tp:
      return "tp";
    case Group::Cp:
      return "cp";
    case Group::Dp:
      return "dp";
    case Group::Pp:
      return "pp";
    case Group::TpPp:
      return "tp-pp";
    case Group::DpCp:
      return "dp-cp";
    case Group::World:
      return "world";
    case Group::Embedding:
      return "embedding";
    case Group::Ep:
      return "ep";
    case Group::Etp:
      return "etp";
    case Group::ExpertDp:
      return "expert-dp";
    case Group::KvCopies:
      return "kv-copies";
    case Group::ZeroShards:
      return "zero-shards";
    case Group::ZeroReplicas:
      return "zero-replicas";
    case Group::ExpertZeroShards:
      return "expert-zero-shards";
    case Group::ExpertZeroReplicas:
      return "expert-zero-replicas";
  }
  throw InvariantError("group without a name");
}

int group_size(Group group, const Plan& plan) {
  return group_size(group, plan.parallel, kv_copies(plan), plan.zero_shard_group);
}

int group_size(Group group, const ParallelConfig& config, int kv_copies, int zero_shard_group) {
  const auto of_all = [&](Group divided) { return group_size(divided, config, kv_copies); };
  switch (group) {
    case Group::ZeroShards:
    case Group::ExpertZeroShards:
      return shard_ranks(of_all(*divided_group(group)), zero_shard_group);
    case Group::ZeroReplicas:
    case Group::ExpertZeroReplicas: {
      const int all = of_all(*divided_group(group));
      return all / shard_ranks(all, zero_shard_group);
    }
    case Group::Tp:
      return config.tp;
    case Group::Cp:
      return config.cp;
    case Group::Dp:
      return config.dp;
    case Group::Pp:
      return config.pp;
    case Group::TpPp:
      return config.tp * config.pp;
    case Group::DpCp:
      return config.dp * config.cp;
    case Group::World:
      return config.world_size();
    case Group::Embedding:
      return config.pp > 1 ? 2 : 1;
    case Group::Ep:
      return config.ep;
    case Group::Etp:
      return config.etp;
    case Group::ExpertDp:
      return config.edp();
    case Group::KvCopies:
      return kv_copies;
  }
  throw InvariantError("group without a size");
}

}  // namespace meshplan::program
