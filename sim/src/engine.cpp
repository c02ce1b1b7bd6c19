#include "sim/engine.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "player.hpp"
#include "program/cost.hpp"
#include "sim/memory.hpp"
#include "sim/pricing.hpp"

namespace meshplan::sim {
namespace {

using program::Program;
using program::Span;

void check_input(const std::vector<Program>& stages, const Cluster& cluster) {
  require_invariant(!stages.empty(), "a simulation needs at least one program");
  const auto& parallel = stages.front().plan.parallel;
  if (static_cast<int>(stages.size()) != parallel.pp)
    throw InvariantError(fmt::format("{} programs for pp = {}", stages.size(), parallel.pp));
  if (parallel.world_size() != cluster.num_ranks())
    throw ConfigError(
        fmt::format("the plan ({}) has {} ranks, but cluster '{}' has {} ({} nodes x {})",
                    to_string(parallel), parallel.world_size(), cluster.name, cluster.num_ranks(),
                    cluster.num_nodes, cluster.devices_per_node));
  for (const Program& program : stages)
    require_invariant(!program.instances.empty(), "a program has operations");
}

std::vector<Span> spans_of(const World& world, const Outcome& outcome, const program::Mesh& mesh) {
  const auto& ends = outcome.step_ends;
  const double begin = ends.size() > 1 ? ends[ends.size() - 2] : 0;
  std::vector<Span> spans;
  for (std::size_t r = 0; r < world.ranks.size(); ++r) {
    const SimulatedRank& rank = world.ranks[r];
    const Program& program = *world.stages[static_cast<std::size_t>(rank.stage)].program;
    for (std::size_t i = 0; i < program.instances.size(); ++i) {
      Span span = program::make_span(program, program.instances[i], mesh, rank.rank);
      span.start_s = outcome.last.start[outcome.offset[r] + i] - begin;
      span.end_s = outcome.last.end[outcome.offset[r] + i] - begin;
      spans.push_back(std::move(span));
    }
  }
  return spans;
}

}  // namespace

SimulationResult simulate(const std::vector<Program>& stages, const Cluster& cluster,
                          const SimulationOptions& options) {
  check_input(stages, cluster);
  const program::Plan& plan = stages.front().plan;
  const program::Mesh mesh = program::mesh_of(plan);
  World world = build_world(stages, cluster, mesh, options);
  const auto player = cluster.communication.needs_host ? make_host_player(world, cluster, options)
                                                       : make_lane_player(world, cluster, options);
  const Outcome outcome = player->run();
  const auto& ends = outcome.step_ends;
  const double period = ends.size() > 1 ? ends.back() - ends[ends.size() - 2] : ends.back();
  SimulationResult result{.step_time_s = with_step_effects(cluster, period),
                          .periodic = outcome.periodic,
                          .folded = world.folded,
                          .steps_played = static_cast<int>(ends.size()),
                          .events = outcome.events,
                          .trace = {},
                          .breakdown = {}};
  result.trace.source = "simulated";
  result.trace.plan = plan;
  result.trace.world_size = mesh.world_size();
  result.trace.step_times_s = {result.step_time_s};
  result.trace.peak_memory_bytes = memory_report(stages, cluster).peak_bytes;
  if (options.record_spans) {
    result.trace.spans = spans_of(world, outcome, mesh);
    result.breakdown = breakdown(result.trace);
  }
  return result;
}

}  // namespace meshplan::sim
