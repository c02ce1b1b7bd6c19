#include "sim/engine/link_traffic.hpp"

#include <map>
#include <tuple>
#include <utility>
#include <variant>

#include "core/error.hpp"
#include "engine/compute_classes.hpp"
#include "program/cost/cost.hpp"
#include "program/plan/mesh.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

using program::Operation;
using program::OperationInstance;
using program::PeerOp;
using program::Program;

using TrafficKey = std::tuple<Category, std::string, std::optional<int>, std::string>;

std::string name_of(program::Collective collective) {
  switch (collective) {
    case program::Collective::AllReduce:
      return "all_reduce";
    case program::Collective::ReduceScatter:
      return "reduce_scatter";
    case program::Collective::AllGather:
      return "all_gather";
    case program::Collective::AllToAll:
    case program::Collective::AllToAllV:
      return "all_to_all";
    case program::Collective::Broadcast:
      return "broadcast";
    case program::Collective::Shift:
      return "shift";
  }
  throw InvariantError("collective without a name");
}

/// Bytes that a rank sends for each that it passes in: the least that any algorithm can
/// (nccl-tests, doc/PERFORMANCE.md; Chan et al. 2007, table 2). @param ranks  of the group
double sent_per_byte(program::Collective collective, int ranks) {
  const double others = ranks - 1;
  switch (collective) {
    case program::Collective::AllReduce:
      return 2 * others / ranks;
    case program::Collective::AllGather:  // its own part, to all others
      return others;
    case program::Collective::ReduceScatter:
    case program::Collective::AllToAll:
    case program::Collective::AllToAllV:
      return others / ranks;
    case program::Collective::Broadcast:
    case program::Collective::Shift:
      return ranks > 1 ? 1 : 0;
  }
  throw InvariantError("collective that sends nothing");
}

/// As what an operation counts.
struct Counted {
  TrafficKey key;
  double sent_per_byte = 1;
};

/// The operation of a stage's first rank; absent: it moves nothing, or receives.
std::optional<Counted> counted_as(const Program& program, const OperationInstance& instance,
                                  int rank, const program::Mesh& mesh, const Cluster& cluster) {
  const Operation& operation = program::operation_of(program, instance);
  const auto* peer = std::get_if<PeerOp>(&operation.work);
  const program::CollectiveOp* collective = program::collective_of(operation);
  if (collective == nullptr && (peer == nullptr || !peer->send)) return std::nullopt;
  const program::Span span = program::make_span(program, instance, mesh, rank);
  const Category category = kind_of(span, program.plan.parallel).category;
  if (peer != nullptr)
    return Counted{
        {category, span.group, level_between(cluster, rank, peer_rank(mesh, rank, *peer)), "send"}};
  const GroupPlacement group = place(cluster, mesh, collective->group, rank);
  return Counted{{category, span.group, group.level, name_of(collective->collective)},
                 sent_per_byte(collective->collective, group.size)};
}

void add_stage_traffic(const Program& program, const Cluster& cluster, double share,
                       std::map<TrafficKey, LinkTraffic>& rows) {
  const program::Mesh mesh = program::mesh_of(program.plan);
  const int rank = mesh.rank_of({.pp = program.role.stage});
  const ProgramPrices prices = price_program(program, rank, mesh, cluster);
  const std::vector<double> times = times_run(program);
  std::map<const Operation*, std::optional<Counted>> known;  // instances share operations
  for (std::size_t i = 0; i < program.instances.size(); ++i) {
    const OperationInstance& instance = program.instances[i];
    if (times[i] == 0) continue;
    const auto [entry, fresh] = known.try_emplace(&program::operation_of(program, instance));
    if (fresh) entry->second = counted_as(program, instance, rank, mesh, cluster);
    if (!entry->second) continue;
    LinkTraffic& row = rows[entry->second->key];
    const double count = share * times[i];
    const double bytes = count * static_cast<double>(program::message_bytes(program, instance));
    row.messages += count;
    row.bytes += bytes;
    row.sent_bytes += bytes * entry->second->sent_per_byte;
    row.alone_s += count * prices.of(i).seconds;
  }
}

}  // namespace

std::vector<LinkTraffic> link_traffic(const PlayedPlan& played, const Cluster& cluster) {
  std::map<TrafficKey, LinkTraffic> rows;
  for (const Program& program : played.programs)
    add_stage_traffic(program, cluster, 1.0 / static_cast<double>(played.programs.size()), rows);
  std::map<Category, double> alone;
  for (const auto& [key, row] : rows) alone[std::get<Category>(key)] += row.alone_s;
  const Breakdown mean = mean_of(played.result.breakdown);
  std::vector<LinkTraffic> traffic;
  for (auto& [key, row] : rows) {
    std::tie(row.category, row.group, row.level, row.operation) = key;
    if (alone[row.category] > 0)
      row.exposed_s = mean[row.category] * row.alone_s / alone[row.category];
    traffic.push_back(std::move(row));
  }
  return traffic;
}

std::vector<LinkTraffic> of_all_operations(const std::vector<LinkTraffic>& traffic) {
  std::vector<LinkTraffic> merged;
  for (const LinkTraffic& row : traffic) {
    const bool same = !merged.empty() && merged.back().category == row.category &&
                      merged.back().group == row.group && merged.back().level == row.level;
    if (!same) merged.push_back({.category = row.category, .group = row.group, .level = row.level});
    LinkTraffic& sum = merged.back();
    sum.messages += row.messages;
    sum.bytes += row.bytes;
    sum.sent_bytes += row.sent_bytes;
    sum.alone_s += row.alone_s;
    sum.exposed_s += row.exposed_s;
  }
  return merged;
}

}  // namespace meshplan::sim
