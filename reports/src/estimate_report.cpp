#include "reports/estimate_report.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/json_text.hpp"
#include "plan_lines.hpp"
#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"
#include "program/lower/lower.hpp"
#include "program/plan_file/plan_file.hpp"
#include "saving_report.hpp"
#include "sim/estimator/estimator.hpp"

namespace meshplan::reports {
namespace {

/// What is left of a step beside the mean stage's tasks, and what the slowest stage does beside
/// tasks.
double mean_bubble_s(const sim::StepPrediction& step) {
  using sim::Category;
  double used = step.busy.computing + step.busy.moving;
  for (const Category category :
       {Category::Pp, Category::Dp, Category::Optimizer, Category::Host, Category::Other})
    used += step.seconds[category];
  return std::max(0.0, step.step_time_s - used);
}

}  // namespace

EstimateReport estimate_report(const program::Plan& plan, const sim::Cluster& cluster,
                               double memory_reserve,
                               const std::optional<planner::SavingIntervals>& saving) {
  EstimateReport report{.plan = plan,
                        .cluster = cluster,
                        .step = sim::Estimator(cluster).estimate(plan),
                        .memory_reserve = memory_reserve};
  report.tokens_per_s =
      static_cast<double>(plan.workload.global_batch_size * plan.workload.seq_len) /
      report.step.step_time_s;
  report.mean_bubble_s = mean_bubble_s(report.step);
  if (saving)
    report.saving = planner::predict_saving(program::lower_all(plan), cluster,
                                            report.step.step_time_s, *saving);
  return report;
}

std::string to_text(const EstimateReport& report) {
  const sim::StepPrediction& step = report.step;
  const double tolerance =
      report.cluster.oversubscribed() ? sim::kSharedCoresTolerance : sim::kEstimatorTolerance;
  return plan_header(report.plan, report.cluster) +
         fmt::format(
             "\nestimated step time  {}   MFU {}   {} tokens/s\n"
             "not played: a play usually differs by less than {:.0f} %{}\n",
             planner::format_seconds(step.step_time_s), percent(step.mfu),
             short_count(report.tokens_per_s), 100 * tolerance,
             step.rough ? ", of this plan perhaps by more" : "") +
         "\ntime of the slowest stage (communication only where nothing hides it)\n" +
         to_text(times_table(step), 2) + "\n" +
         memory_verdict(step.need(), step.largest_stage, report.plan.stack, report.memory_reserve) +
         (report.saving ? to_text(*report.saving) : "");
}

std::string to_json(const EstimateReport& report) {
  const sim::StepPrediction& step = report.step;
  Json times = Json::object();
  for (const sim::Category category : sim::all_categories())
    times[std::string(sim::name_of(category))] = step.seconds[category];
  Json root{{"schema_version", 1},
            {"description", planner::describe(planner::candidate_of(report.plan))},
            {"estimated", true},
            {"rough", step.rough},
            {"step_time_s", step.step_time_s},
            {"mfu", step.mfu},
            {"tokens_per_s", report.tokens_per_s},
            {"breakdown_s", std::move(times)},
            {"mean_bubble_s", report.mean_bubble_s},
            {"largest_stage", step.largest_stage},
            {"peak_memory_bytes", step.peak_memory_bytes},
            {"capacity_bytes", step.capacity_bytes},
            {"of_host", step.of_host},
            {"fits", step.fits()},
            {"memory_verdict", verdict_json(step.need(), report.plan.stack, report.memory_reserve)},
            {"memory_reserve", report.memory_reserve},
            {"plan", Json::parse(program::to_json(report.plan))}};
  if (report.saving) root["saving"] = saving_json(*report.saving);
  return json_text(root) + "\n";
}

}  // namespace meshplan::reports
