#include "planner/tune/rebalance.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "core/index.hpp"
#include "program/plan/mesh.hpp"
#include "program/schedule/schedule.hpp"

namespace meshplan::planner {
namespace {

/// The stage on which each virtual stage lies.
std::vector<int> stages_of(const program::Plan& plan) {
  const program::ParallelConfig& parallel = plan.parallel;
  const program::ChunkPlacement placement =
      parallel.vpp > 1 ? program::placement_of(plan) : program::ChunkPlacement::Loop;
  std::vector<int> stages;
  for (int position = 0; position < parallel.pp * parallel.vpp; ++position)
    stages.push_back(program::place_of(placement, parallel.pp, position).stage);
  return stages;
}

std::vector<int> layers_by_stage(const program::Plan& plan) {
  const std::vector<int> stages = stages_of(plan);
  const std::vector<int> layers = program::resolved_layers_per_stage(plan);
  std::vector<int> sums(at(plan.parallel.pp));
  for (std::size_t i = 0; i < stages.size(); ++i) sums[at(stages[i])] += layers[i];
  return sums;
}

bool takes_stage_time(const program::Span& span) {
  return (span.lane == program::Lane::Compute || span.lane == program::Lane::Tp) &&
         span.phase != program::Phase::Optimizer && span.phase != program::Phase::Reduce;
}

double slowest(const std::vector<double>& seconds) {
  return *std::ranges::max_element(seconds);
}

}  // namespace

std::vector<StageTime> stage_times(const program::Trace& trace) {
  const program::Mesh mesh = program::mesh_of(trace.plan);
  const std::vector<int> layers = layers_by_stage(trace.plan);
  std::vector<StageTime> times(layers.size());
  std::vector<std::set<std::pair<int, int>>> rank_steps(layers.size());
  for (const program::Span& span : trace.spans) {
    if (!takes_stage_time(span)) continue;
    const std::size_t stage = at(mesh.coordinates(span.rank).pp);
    rank_steps[stage].emplace(span.rank, span.step);
    (span.layer ? times[stage].layer_s : times[stage].fixed_s) += span.end_s - span.start_s;
  }
  double sum = 0;
  int all_layers = 0;
  for (std::size_t stage = 0; stage < times.size(); ++stage) {
    if (rank_steps[stage].empty()) return {};
    const auto count = static_cast<double>(rank_steps[stage].size());
    times[stage].layers = layers[stage];
    times[stage].fixed_s /= count;
    sum += times[stage].layer_s / count;
    all_layers += layers[stage];
    times[stage].layer_s /= count * std::max(1, layers[stage]);
  }
  for (StageTime& time : times)
    if (time.layers == 0) time.layer_s = sum / std::max(1, all_layers);
  return times;
}

std::optional<program::Plan> rebalanced(const program::Plan& plan,
                                        const std::vector<StageTime>& times) {
  const std::vector<int> stages = stages_of(plan);
  if (plan.parallel.pp < 2 || std::ssize(times) != plan.parallel.pp ||
      plan.model.num_layers < std::ssize(stages))
    return std::nullopt;
  std::vector<double> before, after;
  for (const StageTime& time : times) {
    before.push_back(time.seconds());
    after.push_back(time.fixed_s);
  }
  std::vector<int> layers(stages.size(), 1);
  for (const int stage : stages) after[at(stage)] += times[at(stage)].layer_s;
  for (int left = plan.model.num_layers - static_cast<int>(stages.size()); left > 0; --left) {
    const auto with_one_more = [&](int position) {
      const std::size_t stage = at(stages[at(position)]);
      return std::pair(after[stage] + times[stage].layer_s, layers[at(position)]);
    };
    int chosen = 0;
    for (int position = 1; position < std::ssize(stages); ++position)
      if (with_one_more(position) < with_one_more(chosen)) chosen = position;
    ++layers[at(chosen)];
    const std::size_t stage = at(stages[at(chosen)]);
    after[stage] += times[stage].layer_s;
  }
  if (slowest(after) >= slowest(before) || layers == program::resolved_layers_per_stage(plan))
    return std::nullopt;
  program::Plan moved = plan;
  moved.layers_per_stage = std::move(layers);
  moved.count_ends_as_layers = false;
  return moved;
}

}  // namespace meshplan::planner
