#include "reports/software_report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan_lines.hpp"
#include "planner/search/reasons.hpp"
#include "reports/adjustment_report.hpp"
#include "reports/table.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/run_terms.hpp"
#include "terms_table.hpp"

namespace meshplan::reports {
namespace {

using Json = nlohmann::ordered_json;

struct Part {
  const char* name;
  double value;
};

std::vector<Part> memory_parts(const sim::RunMemory& memory) {
  return {{"parameters", memory.parameters}, {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},   {"activations", memory.activations},
          {"transient", memory.transient},   {"context of the device", memory.context}};
}

}  // namespace

SoftwareReport software_report(const program::Plan& plan, const sim::Cluster& cluster,
                               const std::string& software, double memory_reserve,
                               const sim::RunSettings& settings,
                               const sim::Adjustment* adjustment) {
  const sim::PreparedRun run(sim::run_of(plan, cluster.name, software, settings),
                             sim::data_sheet_of(cluster));
  SoftwareReport report{.plan = plan,
                        .cluster = cluster,
                        .software = software,
                        .prediction = sim::predicted(run, adjustment),
                        .memory_reserve = memory_reserve};
  report.step = step_of(report.prediction, plan, cluster);
  report.recipes = run.recipes();
  report.terms = terms_of(report.prediction, run.run());
  report.timed = run.timed_shares(sim::constants_of(sim::fitted_constants()));
  if (adjustment != nullptr) {
    report.adjusted_by = anchors_in_words(*adjustment);
    report.without_anchors_s = sim::predicted(run, nullptr).step_time_s;
  }
  report.tokens_per_s =
      static_cast<double>(plan.workload.global_batch_size * plan.workload.seq_len) /
      report.prediction.step_time_s;
  return report;
}

std::string to_text(const SoftwareReport& report) {
  const double step = report.prediction.step_time_s;
  const sim::Interval interval = sim::interval_of(report.terms, step);
  std::string text = plan_header(report.plan, report.cluster) + software_line(report.software);
  for (const std::string& recipe : report.recipes) text += fmt::format("recipe   {}\n", recipe);
  if (!report.adjusted_by.empty())
    text += fmt::format("adjusted by {}; without: {}\n", report.adjusted_by,
                        planner::format_seconds(report.without_anchors_s));
  text += fmt::format("\nstep time  {} (80 % interval {} to {})   MFU {}   {} tokens/s\n",
                      planner::format_seconds(step), planner::format_seconds(interval.low_s),
                      planner::format_seconds(interval.high_s), percent(report.step.mfu),
                      short_count(report.tokens_per_s));
  Table memory{.columns = {{"", Align::Left}, {""}}, .rows = {}};
  for (const Part& part : memory_parts(report.prediction.memory))
    memory.rows.push_back({part.name, planner::format_bytes(part.value)});
  return text + "\ntime of the busiest rank (communication only where nothing hides it)\n" +
         to_text(times_table(report.step), 2) + "\nmemory of the fullest rank\n" +
         to_text(memory, 2) + "  " +
         memory_verdict(report.step, report.prediction.memory.fits(), report.memory_reserve);
}

std::string explain_text(const SoftwareReport& report) {
  return terms_text(report.terms, report.prediction.step_time_s, report.prediction.memory.stage) +
         timed_text(report.timed);
}

std::string to_json(const SoftwareReport& report) {
  const sim::Interval interval = sim::interval_of(report.terms, report.prediction.step_time_s);
  Json times = Json::object(), memory = Json::object();
  for (const sim::Category category : sim::all_categories())
    if (const double seconds = report.step.seconds[category]; seconds > 0)
      times[std::string(sim::name_of(category))] = seconds;
  for (const Part& part : memory_parts(report.prediction.memory)) memory[part.name] = part.value;
  Json adjusted(nullptr);
  if (!report.adjusted_by.empty())
    adjusted = {{"by", report.adjusted_by}, {"without_anchors_s", report.without_anchors_s}};
  return Json({{"software", report.software},
               {"adjusted", std::move(adjusted)},
               {"step_time_s", report.prediction.step_time_s},
               {"interval_80_s", {interval.low_s, interval.high_s}},
               {"near_timed_shapes",
                {{"products", report.timed.products}, {"attention", report.timed.attention}}},
               {"mfu", report.step.mfu},
               {"tokens_per_s", report.tokens_per_s},
               {"breakdown_s", std::move(times)},
               {"memory_bytes", std::move(memory)},
               {"peak_memory_bytes", report.step.peak_memory_bytes},
               {"capacity_bytes", report.step.capacity_bytes},
               {"of_host", report.step.of_host},
               {"fits", report.prediction.memory.fits()}})
             .dump(2) +
         "\n";
}

}  // namespace meshplan::reports
