#include "reports/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include "core/error.hpp"
#include "core/statistics.hpp"
#include "program/lower/lower.hpp"

namespace meshplan::reports {
namespace {

using program::Trace;
using sim::Breakdown;
using sim::Category;

double waiting(const Breakdown& seconds) {
  return seconds[Category::Bubble] + seconds[Category::Other];
}

/// A simulated trace may hold one rank per stage: its stage then stands for this rank.
const Breakdown& of_rank(const std::vector<sim::RankBreakdown>& ranks, int rank,
                         const program::Mesh& mesh) {
  const auto exact = std::ranges::find(ranks, rank, &sim::RankBreakdown::rank);
  if (exact != ranks.end()) return exact->seconds;
  const auto same_stage = std::ranges::find_if(ranks, [&](const sim::RankBreakdown& other) {
    return mesh.coordinates(other.rank).pp == mesh.coordinates(rank).pp;
  });
  require_invariant(same_stage != ranks.end(), "a trace without any rank of a stage");
  return same_stage->seconds;
}

/// Seconds in which an execution of each operation is in progress, mean over the ranks in the trace
/// and its steps: so none takes longer than the step.
std::map<std::string, double> seconds_by_name(const Trace& trace) {
  using TimeInterval = std::pair<double, double>;
  const auto windows = sim::step_windows(trace);
  std::map<std::string, std::map<std::pair<int, int>, std::vector<TimeInterval>>> intervals;
  for (const program::Span& span : trace.spans) {
    const std::pair rank_step(span.rank, span.step);
    const sim::StepWindow& window = windows.at(rank_step);
    intervals[span.name][rank_step].emplace_back(std::max(span.start_s, window.begin_s),
                                                 std::min(span.end_s, window.end_s));
  }
  std::map<std::string, double> seconds;
  for (auto& [name, of_ranks] : intervals)
    for (auto& [rank_step, own] : of_ranks) {
      std::ranges::sort(own);
      double until = windows.at(rank_step).begin_s, sum = 0;
      for (const auto& [begin, end] : own) {
        sum += std::max(0.0, end - std::max(begin, until));
        until = std::max(until, end);
      }
      seconds[name] += sum / static_cast<double>(windows.size());
    }
  return seconds;
}

std::vector<OperationDifference> differences(const Trace& predicted, const Trace& measured) {
  std::map<std::string, OperationDifference> joined;
  for (const auto& [name, seconds] : seconds_by_name(predicted))
    joined[name] = {.name = name, .predicted_s = seconds};
  for (const auto& [name, seconds] : seconds_by_name(measured)) {
    joined[name].name = name;
    joined[name].measured_s = seconds;
  }
  std::vector<OperationDifference> list;
  for (auto& [name, difference] : joined) list.push_back(std::move(difference));
  std::ranges::stable_sort(list, std::ranges::greater{}, [](const OperationDifference& d) {
    return std::abs(d.predicted_s - d.measured_s);
  });
  return list;
}

std::vector<CommunicationDifference> communication(
    const std::map<std::string, sim::CommunicationSplit>& predicted,
    const std::map<std::string, sim::CommunicationSplit>& measured) {
  std::map<std::string, CommunicationDifference> joined;
  for (const auto& [group, split] : predicted)
    joined[group] = {.group = group, .predicted = split, .measured = {}};
  for (const auto& [group, split] : measured) {
    joined[group].group = group;
    joined[group].measured = split;
  }
  std::vector<CommunicationDifference> list;
  for (auto& [group, difference] : joined) list.push_back(std::move(difference));
  return list;
}

/// What the measured operations say by themselves. @param predicted  null: none are predicted
void add_measured_operations(Comparison& result, const Trace& measured, const Trace* predicted) {
  const auto ranks = sim::breakdown(measured);
  result.measured_mean = sim::mean_of(ranks);
  const auto critical = std::ranges::min_element(
      ranks, {}, [](const sim::RankBreakdown& rank) { return waiting(rank.seconds); });
  result.critical_rank = critical->rank;
  result.measured_critical = critical->seconds;
  result.communication =
      communication(predicted == nullptr ? std::map<std::string, sim::CommunicationSplit>{}
                                         : sim::mean_of(sim::split_communication(*predicted)),
                    sim::mean_of(sim::split_communication(measured, predicted)));
  result.causes = sim::delay_causes(measured, predicted);
  result.measured_operations = true;
}

/// A plan without what was believed about it: predictions of several clusters (calibrated again,
/// say) may be compared with one run.
program::Plan what_runs(program::Plan plan) {
  plan.prediction.reset();
  plan.cluster_name.clear();
  plan.cluster_hash.clear();
  plan.cluster_json.clear();
  return plan;
}

void require_comparable(const Trace& predicted, const Trace& measured) {
  if (predicted.measured || !measured.measured)
    throw ConfigError(
        fmt::format("compare needs a predicted and a measured trace, in this order; the first is "
                    "{}, the second {}",
                    predicted.measured ? "measured" : "predicted",
                    measured.measured ? "measured" : "predicted"));
  const program::Plan& a = predicted.plan;
  const program::Plan& b = measured.plan;
  if (what_runs(a) == what_runs(b)) return;
  throw ConfigError(
      fmt::format("the traces are of different plans: predicted {} (micro-batch {}, {}), measured "
                  "{} (micro-batch {}, {}); "
                  "simulate and run the same plan file",
                  program::to_string(a.parallel), a.micro_batch_size, a.model.name,
                  program::to_string(b.parallel), b.micro_batch_size, b.model.name));
}

}  // namespace

StepTimes step_times(const Trace& trace) {
  const auto all = static_cast<int>(trace.step_times_s.size());
  StepTimes times{.warmup_steps = trace.measured && all > 1 ? std::max(1, all / 5) : 0};
  const std::vector<double> counted(trace.step_times_s.begin() + times.warmup_steps,
                                    trace.step_times_s.end());
  times.steps = static_cast<int>(counted.size());
  if (counted.empty()) return times;
  const Spread spread = spread_of(counted);
  times.median_s = spread.median;
  times.p10_s = spread.p10;
  times.p90_s = spread.p90;
  return times;
}

Comparison compare(const Trace& predicted, const Trace& measured) {
  require_comparable(predicted, measured);
  Comparison result{.plan = measured.plan,
                    .predicted = step_times(predicted),
                    .measured = step_times(measured),
                    .tracing_overhead = measured.tracing_overhead,
                    .predicted_memory_bytes = predicted.peak_memory_bytes,
                    .measured_memory_bytes = measured.peak_memory_bytes};
  result.extrapolations = extrapolations_of(predicted.plan);
  if (result.measured.median_s > 0)
    result.step_time_error = result.predicted.median_s / result.measured.median_s - 1;
  if (predicted.spans.empty()) return result;
  const auto predicted_ranks = sim::breakdown(predicted);
  result.predicted_mean = sim::mean_of(predicted_ranks);
  if (measured.spans.empty()) return result;
  add_measured_operations(result, measured, &predicted);
  const program::Mesh mesh(measured.plan.parallel, measured.plan.rank_order);
  result.predicted_critical = of_rank(predicted_ranks, result.critical_rank, mesh);
  result.operations = differences(predicted, measured);
  if (!result.extrapolations.empty())
    result.interval = sim::interval_of(
        sim::terms_of(
            program::lower(predicted.plan, mesh.coordinates(result.critical_rank).pp),
            sim::parse_cluster(predicted.plan.cluster_json, "the predicted plan's cluster"),
            result.predicted_critical, result.predicted.median_s),
        result.predicted.median_s);
  return result;
}

Comparison compare(const planner::TimedPlan& predicted, const Trace& measured) {
  const double step = predicted.step.step_time_s;
  Comparison result{.plan = predicted.plan,
                    .predicted = {.steps = 1, .median_s = step, .p10_s = step, .p90_s = step},
                    .measured = step_times(measured),
                    .tracing_overhead = measured.tracing_overhead,
                    .predicted_memory_bytes = predicted.step.peak_memory_bytes,
                    .measured_memory_bytes = measured.peak_memory_bytes,
                    .predicted_mean = predicted.step.seconds,
                    .interval = sim::interval_of(predicted.terms, step)};
  if (result.measured.median_s > 0) result.step_time_error = step / result.measured.median_s - 1;
  if (!measured.spans.empty()) add_measured_operations(result, measured, nullptr);
  return result;
}

}  // namespace meshplan::reports
