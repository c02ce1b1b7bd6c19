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
  return room.hosts.empty() ? std::nullopt : std::optional(std::move(room));
}

ElasticLayout original(const ElasticRun& run, Room room) {
  const double step_time_s = sim::simulate_step(run.plan, room.cluster).step.step_time_s;
  return {.plan = run.plan,
          .cluster = std::move(room.cluster),
          .hosts = std::move(room.hosts),
          .step_time_s = step_time_s,
          .is_original = true};
}

}  // namespace

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
    if (ranks == run.plan.parallel.world_size()) {
      ElasticLayout own = original(run, *std::move(room));
      if (!best || own.step_time_s <= best->step_time_s) best = std::move(own);
      break;
    }
    ++tried;
    const planner::ReplanOutcome outcome =
        planner::replan({.plan = run.plan, .cluster = room->cluster}, parallel_for);
    if (const auto* none = std::get_if<planner::NoReplan>(&outcome)) {
      if (!best) why_not = fmt::format("{} ranks: {}", ranks, none->reason);
      continue;
    }
    const auto& found = std::get<planner::Replanned>(outcome);
    if (best && best->step_time_s <= found.step_time_s) continue;
    best = ElasticLayout{.plan = found.plan,
                         .cluster = std::move(room->cluster),
                         .hosts = std::move(room->hosts),
                         .step_time_s = found.step_time_s,
                         .change = found.change,
                         .reason = found.reason};
  }
  return best;
}

}  // namespace meshplan::cli
