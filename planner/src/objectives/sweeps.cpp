#include "planner/objectives/sweeps.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "core/error.hpp"
#include "search/degree_bounds.hpp"

namespace meshplan::planner {
namespace {

/// The fastest plan, without its neighbours.
/// @param played  false: as estimated
std::optional<RankedPlan> fastest_plan(SearchRequest request, const ParallelFor& parallel_for,
                                       std::string* reason = nullptr, bool played = true) {
  request.top = 1;
  request.alternatives = false;
  CostModel costs = cost_model(request);
  if (!played) costs.simulate = {};
  const SearchOutcome outcome = search(request, costs, parallel_for);
  if (const auto* result = std::get_if<SearchResult>(&outcome)) return result->ranked.front();
  if (reason == nullptr) return std::nullopt;
  const auto& infeasible = std::get<InfeasibleResult>(outcome);
  *reason = infeasible.nearest_miss || infeasible.rejections.empty()
                ? "nothing fits into memory"
                : infeasible.rejections.front().message;
  return std::nullopt;
}

bool allows(const Constraints& pins, std::optional<int> pin,
            std::optional<int> DegreeBounds::*bounds, int degree) {
  return degree == pin.value_or(degree) && is_within(degree, pins, bounds);
}

void say(const SweepProgress& progress, const std::string& what) {
  if (progress) progress(what);
}

/// Each doubling up to the last of them is worth it.
std::optional<std::size_t> worth_having(const std::vector<DevicePoint>& points) {
  std::optional<std::size_t> last;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!points[i].plan) continue;
    if (last) {
      const double devices = static_cast<double>(points[i].devices) / points[*last].devices;
      const double faster = points[*last].plan->effective_s() / points[i].plan->effective_s();
      if (std::log2(faster) < std::log2(kWorthDoubling) * std::log2(devices)) break;
    }
    last = i;
  }
  return last;
}

/// The largest multiple of `step` that fits, at most `most`: doubled until nothing does, then
/// halved in.
/// @param with  the request at a value
/// @throws ConfigError if the request is wrong at `begin`, too
template <class With>
std::optional<LargestThatFits> largest(std::int64_t begin, std::int64_t step, std::int64_t most,
                                       const With& with, const ParallelFor& parallel_for,
                                       const SweepProgress& progress, const char* unit) {
  std::optional<LargestThatFits> best;
  const auto fits = [&](std::int64_t steps) {
    const std::int64_t value = steps * step;
    say(progress, fmt::format("{} {}", value, unit));
    try {
      std::optional<RankedPlan> plan = fastest_plan(with(value), parallel_for);
      if (!plan) return false;
      best = {value, *std::move(plan)};
      return true;
    } catch (const ConfigError&) {
      if (!best) throw;
      return false;  // more than a model or a plan may have
    }
  };
  std::int64_t low = 0, high = std::max(begin / step, std::int64_t{1});
  while (fits(high)) {
    if (2 * high * step > most) return best;
    low = std::exchange(high, 2 * high);
  }
  while (high - low > std::max<std::int64_t>(1, low / 32)) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return best;
}

}  // namespace

std::vector<int> device_counts(int first, int last) {
  if (first < 1 || last < first)
    throw ConfigError(
        fmt::format("devices {}..{}: the first number must be at least 1 and at most "
                    "the last; nearest: {}..{}",
                    first, last, std::max(1, std::min(first, last)), std::max({1, first, last})));
  std::vector<int> counts;
  for (std::int64_t devices = first; devices < last; devices *= 2)
    counts.push_back(static_cast<int>(devices));
  counts.push_back(last);
  return counts;
}

DeviceSweep sweep_devices(const SearchRequest& request, const std::vector<int>& counts,
                          std::optional<double> deadline_s, const ParallelFor& parallel_for,
                          const SweepProgress& progress) {
  DeviceSweep sweep;
  for (const int devices : counts) {
    say(progress, fmt::format("{} devices", devices));
    DevicePoint point{.devices = devices};
    try {
      SearchRequest with = request;
      with.cluster = sim::with_ranks(request.cluster, devices);
      point.plan = fastest_plan(with, parallel_for, &point.reason);
    } catch (const ConfigError& error) {  // pins, or the cluster's nodes, do not allow so many
      point.reason = error.what();
    }
    sweep.points.push_back(std::move(point));
  }
  for (std::size_t i = 0; i < sweep.points.size(); ++i) {
    if (!sweep.points[i].plan) continue;
    const RankedPlan& plan = *sweep.points[i].plan;
    if (!sweep.fastest || plan.effective_s() < sweep.points[*sweep.fastest].plan->effective_s())
      sweep.fastest = i;
    if (deadline_s && plan.step_time_s() <= *deadline_s && !sweep.fewest_in_time)
      sweep.fewest_in_time = i;
  }
  sweep.worth_having = worth_having(sweep.points);
  return sweep;
}

std::vector<RankedPlan> memory_frontier(const SearchRequest& request, int most,
                                        const ParallelFor& parallel_for,
                                        const SweepProgress& progress) {
  constexpr double kLess = 0.98;  // of the memory before, at most: nearer ones say nothing new
  std::vector<RankedPlan> frontier;
  SearchRequest next = request;
  while (std::ssize(frontier) < most) {
    say(progress, frontier.empty() ? "all memory"
                                   : fmt::format("less than {:.1f} GiB",
                                                 (1 - next.memory_reserve) *
                                                     frontier.back().step().capacity_bytes /
                                                     (std::int64_t{1} << 30)));
    std::optional<RankedPlan> plan = fastest_plan(next, parallel_for);
    if (!plan) break;
    const sim::StepPrediction& step = plan->step();
    next.memory_reserve = 1 - kLess * step.peak_memory_bytes / step.capacity_bytes;
    const bool slower = frontier.empty() || step.step_time_s > frontier.back().step().step_time_s;
    if (!slower) frontier.pop_back();  // a smaller one that a fuller search finds as fast
    frontier.push_back(*std::move(plan));
  }
  return frontier;
}

std::vector<DegreeCell> degree_grid(const SearchRequest& request, const ParallelFor& parallel_for,
                                    const SweepProgress& progress) {
  std::vector<DegreeCell> cells;
  const int ranks = request.cluster.num_ranks();
  const Constraints& pins = request.constraints;
  for (int tp = 1; tp <= std::min(ranks, request.model.num_heads); ++tp) {
    if (ranks % tp != 0 || !allows(pins, pins.tp, &DegreeBounds::tp, tp)) continue;
    for (int pp = 1; pp <= std::min(ranks / tp, request.model.num_layers); ++pp) {
      if (ranks / tp % pp != 0 || !allows(pins, pins.pp, &DegreeBounds::pp, pp)) continue;
      say(progress, fmt::format("tp={} pp={}", tp, pp));
      DegreeCell cell{.tp = tp, .pp = pp, .plan = {}, .reason = {}};
      SearchRequest with = request;
      with.constraints.tp = tp;
      with.constraints.pp = pp;
      try {
        cell.plan = fastest_plan(with, parallel_for, &cell.reason, false);
      } catch (const ConfigError& error) {  // no plan of the space has both
        cell.reason = error.what();
      }
      cells.push_back(std::move(cell));
    }
  }
  return cells;
}

std::optional<LargestThatFits> longest_sequence(const SearchRequest& request,
                                                const ParallelFor& parallel_for,
                                                const SweepProgress& progress) {
  constexpr std::int64_t kStep = 1024;
  return largest(
      request.workload.seq_len, kStep, std::int64_t{1} << 24,
      [&](std::int64_t seq_len) {
        SearchRequest with = request;
        with.workload.seq_len = seq_len;
        return with;
      },
      parallel_for, progress, "tokens");
}

std::optional<LargestThatFits> most_layers(const SearchRequest& request,
                                           const ParallelFor& parallel_for,
                                           const SweepProgress& progress) {
  if (!request.model.layer_pattern.empty() || request.model.moe)
    throw ConfigError(fmt::format(
        "{}: its layers differ, so more of them would be another model; the most layers "
        "are found for models whose layers are alike",
        request.model.name));
  return largest(
      request.model.num_layers, 1, 1 << 12,
      [&](std::int64_t layers) {
        SearchRequest with = request;
        with.model.num_layers = static_cast<int>(layers);
        return with;
      },
      parallel_for, progress, "layers");
}

}  // namespace meshplan::planner
