// A plan with another degree of one axis.
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "planner/scaling/curve.hpp"
#include "planner/search/space.hpp"

namespace meshplan::planner {
namespace {

int degree_of(const program::ParallelConfig& parallel, ScaledAxis axis) {
  switch (axis) {
    case ScaledAxis::Dp:
      return parallel.dp;
    case ScaledAxis::Tp:
      return parallel.tp;
    case ScaledAxis::Pp:
      return parallel.pp;
    case ScaledAxis::Cp:
      return parallel.cp;
    case ScaledAxis::Ep:
      return parallel.ep;
  }
  throw InvariantError("unknown axis");
}

/// `number` on devices / base times as many; absent: it is no integer
std::optional<std::int64_t> times(std::int64_t number, int devices, int base) {
  const std::int64_t product = number * devices;
  if (product % base != 0) return std::nullopt;
  return product / base;
}

void set_tp(program::ParallelConfig& parallel, int tp) {
  if (parallel.etp == parallel.tp) parallel.etp = tp;  // etp is 1 or tp
  parallel.sp = parallel.sp && tp > 1;
  parallel.tp = tp;
}

/// Layers that are divided by hand have as many parts as the stages that they were divided over.
void set_pp(program::Plan& plan, int pp) {
  plan.layers_per_stage.clear();
  plan.recompute.layers_per_stage.clear();
  plan.parallel.pp = pp;
}

void set_degree(program::Plan& plan, ScaledAxis axis, int degree, int dp) {
  const bool default_buckets = plan.bucket_bytes == default_bucket_bytes(plan.parallel);
  switch (axis) {
    case ScaledAxis::Dp:
      plan.parallel.dp = degree;
      break;
    case ScaledAxis::Tp:
      set_tp(plan.parallel, degree);
      break;
    case ScaledAxis::Pp:
      set_pp(plan, degree);
      break;
    case ScaledAxis::Cp:
      plan.parallel.cp = degree;
      break;
    case ScaledAxis::Ep:
      plan.parallel.ep = degree;
      plan.parallel.dp = dp;
      break;
  }
  if (default_buckets) plan.bucket_bytes = default_bucket_bytes(plan.parallel);
}

/// The size nearest to `devices` at which the axis has an integer degree.
int nearest_size(int devices, int step) {
  const int below = devices / step * step;
  return below > 0 && devices - below <= below + step - devices ? below : below + step;
}

}  // namespace

std::string_view scaled_work(std::optional<ScaledAxis> axis) {
  return axis == ScaledAxis::Cp ? "sequence length" : "global batch";
}

ScaledPlan scaled_plan(const program::Plan& base, ScaledAxis axis, ScalingMode mode, int devices) {
  const int ranks = base.parallel.world_size(), old = degree_of(base.parallel, axis);
  ScaledPlan scaled{.degree = {}, .plan = base, .rule = {}, .message = {}};
  const auto degree = times(old, devices, ranks);
  const auto dp = times(base.parallel.dp, devices, ranks);
  if (!degree || (!dp && axis == ScaledAxis::Ep)) {
    scaled.rule = "devices";
    scaled.message = fmt::format(
        "{} = {} on {} devices, so {} devices would need a part of one; nearest: {}",
        meshplan::name_of(axis), old, ranks, devices, nearest_size(devices, ranks / old));
    return scaled;
  }
  scaled.degree = static_cast<int>(*degree);
  set_degree(scaled.plan, axis, *scaled.degree, static_cast<int>(dp.value_or(1)));
  scaled.plan.prediction.reset();
  if (mode == ScalingMode::Weak) {
    program::Workload& workload = scaled.plan.workload;
    std::int64_t& work = axis == ScaledAxis::Cp ? workload.seq_len : workload.global_batch_size;
    const auto scaled_to = times(work, devices, ranks);
    if (!scaled_to) {
      scaled.rule = "work";
      scaled.message =
          fmt::format("weak scaling multiplies the {} ({}) by {}/{}, which is no integer",
                      scaled_work(axis), work, devices, ranks);
      return scaled;
    }
    work = *scaled_to;
  }
  const std::vector<program::Violation> broken = broken_rules(scaled.plan);
  if (broken.empty()) return scaled;
  scaled.rule = broken.front().rule;
  scaled.message = broken.front().message;
  return scaled;
}

}  // namespace meshplan::planner
