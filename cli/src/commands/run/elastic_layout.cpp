#include "commands/run/elastic_layout.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <variant>

#include "core/error.hpp"
#include "planner/elastic/replan.hpp"
#include "sim/engine/simulated_step.hpp"

namespace meshplan::cli {
namespace {

/// Room for so many ranks.
struct Room {
  sim::Cluster cluster;
  std::vector<runtime::HostSlots> hosts;
};

std::optional<Room> room_for(const ElasticRun& run, const runtime::Nodes& nodes, int ranks) {
  Room room;
  try {
    room.cluster = sim::with_ranks(run.cluster, ranks);
  } catch (const ConfigError&) {
    return std::nullopt;  // they do not fill whole nodes
  }
  room.hosts =
      nodes.place(room.cluster.num_nodes, room.cluster.devices_per_node, run.any_placement);
  if (room.hosts.empty()) return std::nullopt;
  room.cluster = with_slow_slots(std::move(room.cluster), nodes, room.hosts);
  return room;
}

ElasticLayout original(const ElasticRun& run, Room room) {
  const double step_time_s = sim::simulate_step(run.plan, room.cluster).step.step_time_s;
  return {.plan = run.plan,
          .cluster = std::move(room.cluster),
          .hosts = std::move(room.hosts),
          .step_time_s = step_time_s,
          .is_original = true};
}

/// @param why_not  gets the reason where no plan fits
std::optional<ElasticLayout> replanned(const ElasticRun& run, Room room,
                                       const planner::ParallelFor& parallel_for,
                                       std::string& why_not) {
  const planner::ReplanOutcome outcome =
      planner::replan({.plan = run.plan, .cluster = room.cluster}, parallel_for);
  if (const auto* none = std::get_if<planner::NoReplan>(&outcome)) {
    why_not = none->reason;
    return std::nullopt;
  }
  const auto& found = std::get<planner::Replanned>(outcome);
  return ElasticLayout{.plan = found.plan,
                       .cluster = std::move(room.cluster),
                       .hosts = std::move(room.hosts),
                       .step_time_s = found.step_time_s,
                       .change = found.change,
                       .reason = found.reason};
}

}  // namespace

sim::Cluster with_slow_slots(sim::Cluster cluster, const runtime::Nodes& nodes,
                             const std::vector<runtime::HostSlots>& hosts) {
  cluster.slow_ranks.clear();
  for (const auto& [rank, times] : nodes.slow_ranks(hosts))
    if (rank < cluster.num_ranks()) cluster.slow_ranks.push_back({rank, times});
  return cluster;
}

std::optional<ElasticLayout> choose_layout(const ElasticRun& run, const runtime::Nodes& nodes,
                                           const planner::ParallelFor& parallel_for,
                                           std::string& why_not) {
  constexpr int kMostTried = 3;  // numbers of ranks; fewer ranks are rarely faster
  const int most = std::min(run.range.most, nodes.usable_slots());
  why_not = fmt::format("{} of at least {} ranks have room", nodes.usable_slots(), run.range.least);
  std::optional<ElasticLayout> best;
  int tried = 0;
  for (int ranks = most; ranks >= run.range.least && (tried < kMostTried || !best); --ranks) {
    std::optional<Room> room = room_for(run, nodes, ranks);
    if (!room) continue;
    const bool is_own = ranks == run.plan.parallel.world_size();
    const bool any_slow = !room->cluster.slow_ranks.empty();
    if (is_own) {
      ElasticLayout own = original(run, *room);
      if (!best || own.step_time_s <= best->step_time_s) best = std::move(own);
    }
    if (!is_own || any_slow) {
      ++tried;
      std::string why;
      std::optional<ElasticLayout> other = replanned(run, *std::move(room), parallel_for, why);
      if (other && (!best || other->step_time_s < best->step_time_s)) best = std::move(other);
      if (!best) why_not = fmt::format("{} ranks: {}", ranks, why);
    }
    if (is_own) break;
  }
  return best;
}

WayOn way_on(const ElasticRun& run, runtime::Nodes nodes) {
  WayOn way{.nodes = std::move(nodes), .layout = std::nullopt, .why_not = ""};
  way.layout = choose_layout(run, way.nodes, planner::serial(), way.why_not);
  return way;
}

}  // namespace meshplan::cli
