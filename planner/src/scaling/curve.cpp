// The points of a scaling curve, simulated.
#include "planner/scaling/curve.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "planner/objectives/sweeps.hpp"
#include "program/cost/model_flops.hpp"
#include "program/plan/mesh.hpp"

namespace meshplan::planner {
namespace {

/// Model FLOPs that a device does in a second: what efficiency is the ratio of.
double pace(const PlanFigures& figures) {
  return program::model_flops_per_step(figures.plan) /
         (figures.step.step_time_s * figures.devices());
}

void require_sizes(const std::vector<int>& devices) {
  if (devices.empty()) throw ConfigError("no numbers of devices to scale over");
  for (const int size : devices)
    if (size < 1 || size > limits::kRanks)
      throw ConfigError(
          fmt::format("{} devices: expected 1 to {}", size, std::int64_t{limits::kRanks}));
}

program::Group group_of(std::optional<ScaledAxis> axis) {
  if (!axis) return program::Group::World;
  switch (*axis) {
    case ScaledAxis::Dp:
      return program::Group::DpCp;
    case ScaledAxis::Tp:
      return program::Group::Tp;
    case ScaledAxis::Pp:
      return program::Group::Pp;
    case ScaledAxis::Cp:
      return program::Group::Cp;
    case ScaledAxis::Ep:
      return program::Group::Ep;
  }
  throw InvariantError("unknown axis");
}

/// The outermost level that the axis' first group needs.
std::string level_of(const program::Plan& plan, const sim::Cluster& cluster,
                     std::optional<ScaledAxis> axis) {
  const auto level = sim::place(cluster, program::mesh_of(plan), group_of(axis), 0).level;
  return level ? cluster.fabric[static_cast<std::size_t>(*level)].name : "";
}

void fill(ScalingPoint& point, const program::Plan& plan, const sim::Cluster& cluster,
          std::optional<ScaledAxis> axis) {
  point.figures = figures_of(plan, cluster);
  point.level = level_of(plan, cluster, axis);
  point.shares_cores = cluster.oversubscribed();
}

/// A point that cannot be: by a rule, or because the cluster has no such size.
template <class Work>
void fill_or_say_why(ScalingPoint& point, const char* rule, const Work& work) {
  try {
    work();
  } catch (const ConfigError& error) {
    point.figures.reset();
    point.rule = rule;
    point.message = error.what();
  }
}

/// Sequences that a step must have a multiple of: whole micro-batches of every replica, in whole
/// rounds of an interleaved pipeline.
std::int64_t batch_step(const program::Plan& plan) {
  const bool rounds = program::loops_over_chunks(plan.schedule) && plan.parallel.vpp > 1;
  return std::int64_t{plan.micro_batch_size} * plan.parallel.dp * (rounds ? plan.parallel.pp : 1);
}

/// The fewest sequences, in steps of an eighth, that keep the pace; at most 64 times as many as the
/// base has.
std::optional<IsoBatch> iso_batch(const program::Plan& base, const sim::Cluster& cluster,
                                  double pace_to_keep) {
  constexpr std::int64_t kMostTimes = 64;
  constexpr int kHalvings = 3;
  const std::int64_t step = batch_step(base);
  const std::int64_t fewest = (base.workload.global_batch_size + step - 1) / step;
  IsoBatch last;
  const auto keeps = [&](std::int64_t steps) {
    program::Plan plan = base;
    plan.workload.global_batch_size = steps * step;
    if (!broken_rules(plan).empty()) return false;
    const double part = pace(figures_of(plan, cluster)) / pace_to_keep;
    last = {.global_batch_size = steps * step, .efficiency = part, .reached = part >= 1};
    return last.reached;
  };
  std::int64_t low = 0, high = fewest;
  while (!keeps(high)) {
    low = high;
    high *= 2;
    if (high > kMostTimes * fewest) {
      if (last.global_batch_size == 0) return std::nullopt;
      return last;
    }
  }
  IsoBatch best = last;
  if (low == 0) return best;
  for (int i = 0; i < kHalvings && high - low > 1; ++i) {
    const std::int64_t middle = low + (high - low) / 2;
    (keeps(middle) ? high : low) = middle;
    if (last.reached) best = last;
  }
  return best;
}

void find_iso_batches(ScalingCurve& curve, const sim::Cluster& cluster, std::int64_t base_batch,
                      const ParallelFor& parallel_for) {
  if (!curve.first) return;
  const double kept = curve.request.least_efficiency * pace(*curve.points[*curve.first].figures);
  parallel_for.run(curve.points.size(), [&](std::size_t i, int) {
    ScalingPoint& point = curve.points[i];
    if (!point.is_valid()) return;
    program::Plan plan = point.figures->plan;
    if (curve.axis != ScaledAxis::Cp) plan.workload.global_batch_size = base_batch;
    try {
      point.iso = iso_batch(plan, sim::with_ranks(cluster, point.devices), kept);
    } catch (const ConfigError&) {
      // A step with so many micro-batches is too long to be played.
    }
    if (point.iso) point.iso->efficiency *= curve.request.least_efficiency;
  });
}

ScalingPoint point_of_search(const SearchRequest& search, ScalingMode mode, int devices,
                             int base_devices, const ParallelFor& parallel_for) {
  ScalingPoint point{.devices = devices};
  SearchRequest with = search;
  if (mode == ScalingMode::Weak)
    with.workload.global_batch_size =
        std::max<std::int64_t>(1, search.workload.global_batch_size * devices / base_devices);
  const DevicePoint found =
      sweep_devices(with, {devices}, /*deadline_s=*/{}, parallel_for).points.front();
  point.message = found.reason;
  if (!found.plan) {
    point.rule = "search";
    return point;
  }
  fill_or_say_why(point, "size", [&] {
    fill(point, found.plan->plan, sim::with_ranks(search.cluster, devices), {});
  });
  return point;
}

}  // namespace

ScalingCurve scale_plan(const program::Plan& base, ScaledAxis axis, const sim::Cluster& cluster,
                        const ScalingRequest& request, const ParallelFor& parallel_for,
                        const ScalingProgress& progress) {
  require_sizes(request.devices);
  if (axis == ScaledAxis::Pp && base.schedule == program::ScheduleKind::Custom)
    throw ConfigError(
        fmt::format("schedule: custom: it is written for pp = {}; scale along another axis, or a "
                    "plan with a schedule of any size (1f1b)",
                    base.parallel.pp));
  ScalingCurve curve{.request = request, .axis = axis};
  curve.points.resize(request.devices.size());
  parallel_for.run(curve.points.size(), [&](std::size_t i, int) {
    ScalingPoint& point = curve.points[i];
    point.devices = request.devices[i];
    if (progress) progress(point.devices);
    ScaledPlan scaled = scaled_plan(base, axis, request.mode, point.devices);
    point.degree = scaled.degree;
    point.rule = std::move(scaled.rule);
    point.message = std::move(scaled.message);
    if (!point.message.empty()) return;
    fill_or_say_why(point, "size", [&] {
      fill(point, scaled.plan, sim::with_ranks(cluster, point.devices), axis);
    });
  });
  summarize(curve);
  if (request.iso_efficiency)
    find_iso_batches(curve, cluster, base.workload.global_batch_size, parallel_for);
  return curve;
}

ScalingCurve scale_search(const SearchRequest& search, const ScalingRequest& request,
                          const ParallelFor& parallel_for, const ScalingProgress& progress) {
  require_sizes(request.devices);
  ScalingCurve curve{.request = request};
  for (const int devices : request.devices) {
    if (progress) progress(devices);
    curve.points.push_back(
        point_of_search(search, request.mode, devices, request.devices.front(), parallel_for));
  }
  summarize(curve);
  if (request.iso_efficiency)
    find_iso_batches(curve, search.cluster, search.workload.global_batch_size, parallel_for);
  return curve;
}

}  // namespace meshplan::planner
