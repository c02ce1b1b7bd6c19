#include "program/plan/mesh.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <numeric>
#include <ranges>
#include <string_view>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/limits.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::program {
namespace {

constexpr std::array<std::pair<Axis, std::string_view>, 5> kAxisNames = {
    {{Axis::Tp, "tp"}, {Axis::Cp, "cp"}, {Axis::Ep, "ep"}, {Axis::Dp, "dp"}, {Axis::Pp, "pp"}}};

using AxisOrder = std::array<Axis, kAxisNames.size()>;

AxisOrder parse_order(const std::string& order) {
  AxisOrder axes{};
  std::size_t count = 0, begin = 0;
  while (begin <= order.size() && count < axes.size()) {
    const std::size_t end = std::min(order.find('-', begin), order.size());
    const std::string_view name = std::string_view(order).substr(begin, end - begin);
    const auto found =
        std::ranges::find(kAxisNames, name, &std::pair<Axis, std::string_view>::second);
    const auto known = axes.begin() + static_cast<std::ptrdiff_t>(count);
    if (found == kAxisNames.end() || std::find(axes.begin(), known, found->first) != known) break;
    axes[count++] = found->first;
    begin = end + 1;
  }
  if (count != axes.size() || begin <= order.size())
    throw ConfigError(
        fmt::format("rank order '{}' must name each of tp, cp, ep, dp, pp once, innermost first; "
                    "for example '{}'",
                    order, Mesh::kDefaultOrder));
  return axes;
}

/// A coordinate and its degree on the dense or the expert grid; null: the axis is not on that grid.
using AxisView = std::pair<int Coordinates::*, int>;

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

/// Without pp, which places of a stage do not vary.
AxisView expert_axis(Axis axis, const ParallelConfig& config) {
  switch (axis) {
    case Axis::Tp:
      return {&Coordinates::etp, config.etp};
    case Axis::Ep:
      return {&Coordinates::ep, config.ep};
    case Axis::Dp:
      return {&Coordinates::edp, config.edp()};
    case Axis::Pp:
    case Axis::Cp:
      break;
  }
  return {nullptr, 1};
}

bool varies(Group group, int Coordinates::*coordinate) {
  const auto any_of = [&](auto... axes) { return ((coordinate == axes) || ...); };
  switch (group) {
    case Group::Tp:
    case Group::KvCopies:
      return any_of(&Coordinates::tp);
    case Group::Cp:
      return any_of(&Coordinates::cp);
    case Group::Dp:
      return any_of(&Coordinates::dp);
    case Group::Pp:
    case Group::Embedding:
      return any_of(&Coordinates::pp);
    case Group::TpPp:
      return any_of(&Coordinates::tp, &Coordinates::pp);
    case Group::DpCp:
      return any_of(&Coordinates::dp, &Coordinates::cp);
    case Group::World:
      return any_of(&Coordinates::tp, &Coordinates::cp, &Coordinates::dp, &Coordinates::pp);
    case Group::Ep:
      return any_of(&Coordinates::ep);
    case Group::Etp:
      return any_of(&Coordinates::etp);
    case Group::ExpertDp:
      return any_of(&Coordinates::edp);
    case Group::ZeroShards:
    case Group::ZeroReplicas:
    case Group::ExpertZeroShards:
    case Group::ExpertZeroReplicas:
    case Group::EpWithin:
    case Group::EpAcross:
      break;
  }
  throw InvariantError("group without axes");
}

/// The group that hybrid sharding or the exchange of experts divides, if this is a part of one.
std::optional<Group> divided_group(Group part) {
  if (part == Group::EpWithin || part == Group::EpAcross) return Group::Ep;
  if (part == Group::ZeroShards || part == Group::ZeroReplicas) return Group::DpCp;
  if (part == Group::ExpertZeroShards || part == Group::ExpertZeroReplicas) return Group::ExpertDp;
  return std::nullopt;
}

/// Ranks of a group of `size` that make up a part, such as those that share one copy of what ZeRO
/// shards. A group that the asked number does not divide takes the largest number that divides
/// both.
int part_ranks(int size, int asked) {
  return asked == 0 ? size : std::gcd(size, asked);
}

/// Do the members of a part stand next to each other in the divided group?
bool is_run(Group part) {
  return part == Group::ZeroShards || part == Group::ExpertZeroShards || part == Group::EpWithin;
}

bool on_expert_grid(Group group) {
  return group == Group::Ep || group == Group::Etp || group == Group::ExpertDp;
}

}  // namespace

void Mesh::require_valid(const ParallelConfig& config, const std::string& order) {
  parse_order(order);
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
  if (stage_ranks % expert_ranks != 0) {
    const bool etp_fits = stage_ranks % config.etp == 0;
    throw ConfigError(fmt::format(
        "etp({}) * ep({}) = {} does not divide tp({}) * cp({}) * dp({}) = {}; nearest {}: {}",
        config.etp, config.ep, expert_ranks, config.tp, config.cp, config.dp, stage_ranks,
        etp_fits ? "ep" : "etp",
        etp_fits ? nearest_divisor(stage_ranks / config.etp, config.ep)
                 : nearest_divisor(stage_ranks, config.etp)));
  }
}

Mesh::Mesh(const ParallelConfig& config, const std::string& order, int kv_copies,
           int zero_shard_group, int expert_node_ranks)
    : config_(config),
      kv_copies_(kv_copies),
      zero_shard_group_(zero_shard_group),
      expert_node_ranks_(expert_node_ranks) {
  require_valid(config, order);
  require_invariant(kv_copies >= 1, "a head is held by some rank");
  const AxisOrder axes = parse_order(order);
  dense_.reserve(axes.size());
  expert_.reserve(axes.size());
  int dense_stride = 1, expert_stride = 1;
  for (const Axis axis : axes) {
    if (axis == Axis::Pp) stage_stride_ = dense_stride;
    if (const auto [coordinate, degree] = dense_axis(axis, config); coordinate != nullptr) {
      dense_.push_back({coordinate, degree, dense_stride});
      dense_stride *= degree;
    }
    if (const auto [coordinate, degree] = expert_axis(axis, config); coordinate != nullptr) {
      expert_.push_back({coordinate, degree, expert_stride});
      expert_stride *= degree;
    }
  }
}

int Mesh::rank_at(int place, int stage) const {
  const int outer = place / stage_stride_;
  return place % stage_stride_ + stage_stride_ * (stage + config_.pp * outer);
}

int Mesh::place_in_stage(int rank) const {
  return rank % stage_stride_ + stage_stride_ * (rank / (stage_stride_ * config_.pp));
}

Coordinates Mesh::coordinates(int rank) const {
  require_invariant(rank >= 0 && rank < world_size(), "rank outside the mesh");
  Coordinates coordinates;
  for (const Step& step : dense_) coordinates.*step.coordinate = rank / step.stride % step.degree;
  const int place = place_in_stage(rank);
  for (const Step& step : expert_) coordinates.*step.coordinate = place / step.stride % step.degree;
  return coordinates;
}

int Mesh::rank_of(const Coordinates& coordinates) const {
  int rank = 0;
  for (const Step& step : dense_) rank += coordinates.*step.coordinate * step.stride;
  return rank;
}

int Mesh::run_length(Group part, int size) const {
  return part_ranks(size,
                    divided_group(part) == Group::Ep ? expert_node_ranks_ : zero_shard_group_);
}

/// The members of a part: a run of neighbours of the divided group, or every so manieth of them.
std::vector<int> Mesh::part_of(const std::vector<int>& divided, Group part, int member) const {
  const int size = static_cast<int>(divided.size());
  const int shards = run_length(part, size);
  std::vector<int> members;
  if (is_run(part)) {
    const int first = member / shards * shards;
    const auto begin = divided.begin() + first;
    members.assign(begin, begin + shards);
  } else {
    for (int i = member % shards; i < size; i += shards) members.push_back(divided[at(i)]);
  }
  return members;
}

std::vector<int> Mesh::group(Group group, int rank) const {
  if (const auto whole = divided_group(group)) {
    const std::vector<int> divided = this->group(*whole, rank);
    const auto own = std::ranges::lower_bound(divided, rank) - divided.begin();
    return part_of(divided, group, static_cast<int>(own));
  }
  const bool expert = on_expert_grid(group);
  const Coordinates own = coordinates(rank);
  const int last_stage = config_.pp - 1;
  if (group == Group::Embedding && own.pp != 0 && own.pp != last_stage) return {rank};
  const std::vector<Step>& grid = expert ? expert_ : dense_;
  // The member that comes first, then all that lie along the varied axes, outermost first:
  // ascending.
  std::vector<int> members = {expert ? place_in_stage(rank) : rank};
  for (const Step& step : grid)
    if (varies(group, step.coordinate)) members.front() -= own.*step.coordinate * step.stride;
  for (const Step& step : std::views::reverse(grid)) {
    if (!varies(group, step.coordinate) || step.degree == 1) continue;
    int begin = 0, end = step.degree, by = 1;
    if (group == Group::Embedding) by = last_stage;
    if (group == Group::KvCopies) {
      begin = own.tp / kv_copies_ * kv_copies_;
      end = begin + kv_copies_;
    }
    std::vector<int> spread;
    spread.reserve(members.size() * static_cast<std::size_t>((end - begin - 1) / by + 1));
    for (const int member : members)
      for (int value = begin; value < end; value += by)
        spread.push_back(member + value * step.stride);
    members = std::move(spread);
  }
  if (expert)
    for (int& member : members) member = rank_at(member, own.pp);
  return members;
}

std::vector<std::vector<int>> Mesh::groups(Group which) const {
  std::vector<std::vector<int>> all;
  if (const auto whole = divided_group(which)) {  // each whole group once, however many its parts
    for (const std::vector<int>& divided : groups(*whole)) {
      const int size = static_cast<int>(divided.size());
      const int shards = run_length(which, size);
      for (int first = 0; first < (is_run(which) ? size : shards);
           first += is_run(which) ? shards : 1)
        all.push_back(part_of(divided, which, first));
    }
    std::ranges::sort(all, {}, [](const std::vector<int>& ranks) { return ranks.front(); });
    return all;
  }
  std::vector<bool> seen(static_cast<std::size_t>(world_size()), false);
  for (int rank = 0; rank < world_size(); ++rank) {
    if (seen[at(rank)]) continue;
    all.push_back(group(which, rank));
    for (const int member : all.back()) seen[at(member)] = true;
  }
  return all;
}

int Mesh::group_size(Group group) const {
  return program::group_size(group, config_, kv_copies_, zero_shard_group_, expert_node_ranks_);
}

int kv_copies(const Plan& plan) {
  const int heads = plan.model.num_kv_heads;
  return heads > 0 && plan.parallel.tp > heads ? plan.parallel.tp / heads : 1;
}

Mesh mesh_of(const Plan& plan) {
  return Mesh(plan.parallel, plan.rank_order, kv_copies(plan), plan.zero_shard_group,
              plan.expert_node_ranks);
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
    case Group::EpWithin:
      return "ep-within";
    case Group::EpAcross:
      return "ep-across";
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
  return group_size(group, plan.parallel, kv_copies(plan), plan.zero_shard_group,
                    plan.expert_node_ranks);
}

int group_size(Group group, const ParallelConfig& config, int kv_copies, int zero_shard_group,
               int expert_node_ranks) {
  const auto of_all = [&](Group divided) { return group_size(divided, config, kv_copies); };
  switch (group) {
    case Group::ZeroShards:
    case Group::ExpertZeroShards:
      return part_ranks(of_all(*divided_group(group)), zero_shard_group);
    case Group::ZeroReplicas:
    case Group::ExpertZeroReplicas: {
      const int all = of_all(*divided_group(group));
      return all / part_ranks(all, zero_shard_group);
    }
    case Group::EpWithin:
      return part_ranks(config.ep, expert_node_ranks);
    case Group::EpAcross:
      return config.ep / part_ranks(config.ep, expert_node_ranks);
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
