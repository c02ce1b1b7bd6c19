#include "reports/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "core/statistics.hpp"
#include "core/units.hpp"
#include "extrapolation_json.hpp"
#include "program/lower/lower.hpp"
#include "reports/table.hpp"

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

/// Seconds by operation name, mean over the ranks in the trace and its steps.
std::map<std::string, double> seconds_by_name(const Trace& trace) {
  std::set<std::pair<int, int>> rank_steps;
  std::map<std::string, double> seconds;
  for (const program::Span& span : trace.spans) {
    rank_steps.emplace(span.rank, span.step);
    seconds[span.name] += span.end_s - span.start_s;
  }
  for (auto& [name, sum] : seconds)
    sum /= static_cast<double>(std::max<std::size_t>(1, rank_steps.size()));
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

std::string milliseconds(double seconds) {
  return fmt::format("{:.2f}", seconds * kMilliseconds);
}

std::string error_of(double predicted, double measured) {
  return measured > 0 ? fmt::format("{:+.1f} %", (predicted / measured - 1) * 100) : "-";
}

std::string mib(double bytes) {
  return fmt::format("{:.1f}", bytes / kMib);
}

Table category_table(const Comparison& c) {
  Table table{.columns = {{"category", Align::Left},
                          {"predicted ms"},
                          {"measured ms"},
                          {"difference"},
                          {"critical rank: predicted"},
                          {"measured"}}};
  for (const Category category : sim::all_categories()) {
    const double predicted = c.predicted_mean[category];
    const double measured = c.measured_mean[category];
    if (predicted == 0 && measured == 0) continue;
    table.rows.push_back({std::string(sim::name_of(category)), milliseconds(predicted),
                          milliseconds(measured),
                          fmt::format("{:+.2f}", (predicted - measured) * kMilliseconds),
                          milliseconds(c.predicted_critical[category]),
                          milliseconds(c.measured_critical[category])});
  }
  table.rows.push_back(
      {"sum", milliseconds(c.predicted_mean.total()), milliseconds(c.measured_mean.total()),
       fmt::format("{:+.2f}", (c.predicted_mean.total() - c.measured_mean.total()) * kMilliseconds),
       milliseconds(c.predicted_critical.total()), milliseconds(c.measured_critical.total())});
  return table;
}

Json breakdown_json(const Breakdown& seconds) {
  Json object = Json::object();
  for (const Category category : sim::all_categories())
    object[std::string(sim::name_of(category)) + "_s"] = seconds[category];
  return object;
}

Json times_json(const StepTimes& times) {
  return {{"warmup_steps", times.warmup_steps},
          {"steps", times.steps},
          {"median_s", times.median_s},
          {"p10_s", times.p10_s},
          {"p90_s", times.p90_s}};
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
  if (predicted.spans.empty() || measured.spans.empty()) return result;
  const auto predicted_ranks = sim::breakdown(predicted);
  const auto measured_ranks = sim::breakdown(measured);
  result.predicted_mean = sim::mean_of(predicted_ranks);
  result.measured_mean = sim::mean_of(measured_ranks);
  const auto critical = std::ranges::min_element(
      measured_ranks, {}, [](const sim::RankBreakdown& rank) { return waiting(rank.seconds); });
  const program::Mesh mesh(measured.plan.parallel, measured.plan.rank_order);
  result.critical_rank = critical->rank;
  result.measured_critical = critical->seconds;
  result.predicted_critical = of_rank(predicted_ranks, critical->rank, mesh);
  result.operations = differences(predicted, measured);
  if (!result.extrapolations.empty())
    result.interval = sim::interval_of(
        sim::terms_of(
            program::lower(predicted.plan, mesh.coordinates(critical->rank).pp),
            sim::parse_cluster(predicted.plan.cluster_json, "the predicted plan's cluster"),
            result.predicted_critical, result.predicted.median_s),
        result.predicted.median_s);
  return result;
}

std::string to_text(const Comparison& c, int most_operations) {
  std::string text =
      fmt::format("{}  {}  micro-batch {}  {} sequences of {}\n\n", c.plan.model.name,
                  program::to_string(c.plan.parallel), c.plan.micro_batch_size,
                  c.plan.workload.global_batch_size, c.plan.workload.seq_len);
  Table steps{
      .columns = {{"", Align::Left}, {"predicted"}, {"measured"}, {"error"}, {"", Align::Left}}};
  steps.rows.push_back(
      {"step time, ms", milliseconds(c.predicted.median_s), milliseconds(c.measured.median_s),
       error_of(c.predicted.median_s, c.measured.median_s),
       fmt::format("median of {} steps after {} of warm-up; p10 {} p90 {}", c.measured.steps,
                   c.measured.warmup_steps, milliseconds(c.measured.p10_s),
                   milliseconds(c.measured.p90_s))});
  steps.rows.push_back(
      {"peak memory, MiB", mib(c.predicted_memory_bytes), mib(c.measured_memory_bytes),
       error_of(c.predicted_memory_bytes, c.measured_memory_bytes), "largest rank, resident"});
  text += to_text(steps) + to_text(c.extrapolations, c.interval) + "\n";
  if (c.operations.empty()) return text + "no spans: run with --trace for the breakdown\n";
  text += fmt::format(
      "Traced steps take {:+.1f} % of an untraced one. Mean over ranks; critical rank {}.\n\n",
      c.tracing_overhead * 100, c.critical_rank);
  text += to_text(category_table(c)) + "\n";
  Table operations{.columns = {{"operation (largest difference first)", Align::Left},
                               {"predicted ms"},
                               {"measured ms"},
                               {"difference"},
                               {"error"}}};
  for (const OperationDifference& d : c.operations) {
    if (static_cast<int>(operations.rows.size()) == most_operations) break;
    operations.rows.push_back(
        {d.name, milliseconds(d.predicted_s), milliseconds(d.measured_s),
         fmt::format("{:+.2f}", (d.predicted_s - d.measured_s) * kMilliseconds),
         error_of(d.predicted_s, d.measured_s)});
  }
  return text + to_text(operations);
}

std::string to_json(const Comparison& c) {
  Json operations = Json::array();
  for (const OperationDifference& d : c.operations)
    operations.push_back(
        {{"name", d.name}, {"predicted_s", d.predicted_s}, {"measured_s", d.measured_s}});
  Json root{{"schema_version", 1},
            {"predicted", times_json(c.predicted)},
            {"measured", times_json(c.measured)},
            {"step_time_error", c.step_time_error},
            {"tracing_overhead", c.tracing_overhead},
            {"predicted_memory_bytes", c.predicted_memory_bytes},
            {"measured_memory_bytes", c.measured_memory_bytes},
            {"predicted_mean", breakdown_json(c.predicted_mean)},
            {"measured_mean", breakdown_json(c.measured_mean)},
            {"critical_rank", c.critical_rank},
            {"predicted_critical", breakdown_json(c.predicted_critical)},
            {"measured_critical", breakdown_json(c.measured_critical)},
            {"operations", std::move(operations)}};
  if (!c.extrapolations.empty()) root["extrapolations"] = extrapolations_json(c.extrapolations);
  return root.dump(2) + "\n";
}

}  // namespace meshplan::reports
