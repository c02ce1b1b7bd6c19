#include "sim/engine/link_traffic.hpp"

#include <map>
#include <tuple>
#include <utility>
#include <variant>

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

using TrafficKey = std::tuple<Category, std::string, std::optional<int>>;

/// What the operation of a stage's first rank is counted as; absent: it moves nothing, or receives.
std::optional<TrafficKey> traffic_key(const Program& program, const OperationInstance& instance,
                                      int rank, const program::Mesh& mesh, const Cluster& cluster) {
  const Operation& operation = program::operation_of(program, instance);
  const auto* peer = std::get_if<PeerOp>(&operation.work);
  const program::CollectiveOp* collective = program::collective_of(operation);
  if (collective == nullptr && (peer == nullptr || !peer->send)) return std::nullopt;
  const program::Span span = program::make_span(program, instance, mesh, rank);
  const std::optional<int> level = peer != nullptr
                                       ? level_between(cluster, rank, peer_rank(mesh, rank, *peer))
                                       : place(cluster, mesh, collective->group, rank).level;
  return TrafficKey{kind_of(span, program.plan.parallel).category, span.group, level};
}

void add_stage_traffic(const Program& program, const Cluster& cluster, double share,
                       std::map<TrafficKey, LinkTraffic>& rows) {
  const program::Mesh mesh = program::mesh_of(program.plan);
  const int rank = mesh.rank_of({.pp = program.role.stage});
  const ProgramPrices prices = price_program(program, rank, mesh, cluster);
  const std::vector<double> times = times_run(program);
  std::map<const Operation*, std::optional<TrafficKey>> known;  // instances share operations
  for (std::size_t i = 0; i < program.instances.size(); ++i) {
    const OperationInstance& instance = program.instances[i];
    if (times[i] == 0) continue;
    const auto [entry, fresh] = known.try_emplace(&program::operation_of(program, instance));
    if (fresh) entry->second = traffic_key(program, instance, rank, mesh, cluster);
    if (!entry->second) continue;
    LinkTraffic& row = rows[*entry->second];
    const double count = share * times[i];
    row.messages += count;
    row.bytes += count * static_cast<double>(program::message_bytes(program, instance));
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
    std::tie(row.category, row.group, row.level) = key;
    if (alone[row.category] > 0)
      row.exposed_s = mean[row.category] * row.alone_s / alone[row.category];
    traffic.push_back(std::move(row));
  }
  return traffic;
}

}  // namespace meshplan::sim
