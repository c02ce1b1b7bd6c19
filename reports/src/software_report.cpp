#include "reports/software_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "plan_lines.hpp"
#include "planner/search/reasons.hpp"
#include "program/plan_file/stack_settings.hpp"
#include "reports/adjustment_report.hpp"
#include "reports/table.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/run_terms.hpp"
#include "sim/stacks/stack_memory.hpp"
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

/// What the stack does by itself where the plan leaves it open, of what such a plan has.
std::vector<std::string> assumed_settings(const sim::PreparedRun& run,
                                          const program::StackSettings& stated) {
  const sim::TrainingRun& resolved = run.run();
  const program::ParallelConfig& p = resolved.parallel;
  program::StackSettings open;
  const auto take = [&](auto program::StackSettings::*setting, bool matters) {
    if (matters && !(stated.*setting)) open.*setting = resolved.settings.*setting;
  };
  take(&program::StackSettings::overlap_dp, p.dp * p.cp > 1);
  take(&program::StackSettings::overlap_tp, p.tp > 1);
  take(&program::StackSettings::overlap_p2p, p.pp > 1);
  take(&program::StackSettings::overlap_ep, p.ep > 1);
  take(&program::StackSettings::expert_dispatch, p.ep > 1);
  take(&program::StackSettings::cuda_graphs, true);
  take(&program::StackSettings::loss, true);
  if (!stated.gradient_dtype)
    open.gradient_dtype =
        run.profile().gradient_bytes >= 4 ? program::StateDType::F32 : program::StateDType::BF16;
  return program::stated_settings(open);
}

Json refused_json(const std::vector<program::Violation>& refused) {
  Json all = Json::array();
  for (const program::Violation& violation : refused)
    all.push_back({{"rule", violation.rule}, {"message", violation.message}});
  return all;
}

}  // namespace

SoftwareReport software_report(const program::Plan& plan, const sim::Cluster& cluster,
                               double memory_reserve, const sim::Adjustment* adjustment,
                               std::vector<program::Violation> refused) {
  const sim::PreparedRun run(sim::run_of(plan, cluster.name), sim::data_sheet_of(cluster));
  SoftwareReport report{.plan = plan,
                        .cluster = cluster,
                        .prediction = sim::predicted(run, adjustment),
                        .memory_reserve = memory_reserve};
  report.step = step_of(report.prediction, plan, cluster);
  report.recipes = run.recipes();
  report.assumed = assumed_settings(run, plan.stack.settings);
  report.other_releases =
      sim::other_verdicts(plan, cluster, sim::memory_margin(plan.stack, memory_reserve));
  report.terms = terms_of(report.prediction, run.run());
  report.refused = std::move(refused);
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

std::string refused_text(const std::vector<program::Violation>& refused) {
  std::string text;
  for (const program::Violation& violation : refused)
    text += fmt::format("\n!! would not start: {} ({})\n", violation.message, violation.rule);
  return text;
}

std::string to_text(const SoftwareReport& report) {
  const double step = report.prediction.step_time_s;
  const sim::Interval interval = sim::interval_of(report.terms, step);
  std::string text = plan_header(report.plan, report.cluster) + software_line(report.plan.stack);
  text += assumed_line(report);
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
         shown_memory_line(sim::shown_memory(report.prediction.memory)) + "  " +
         memory_verdict(report.step.need(), report.step.largest_stage, report.plan.stack,
                        report.memory_reserve) +
         other_releases_line(report.other_releases) + refused_text(report.refused);
}

std::string explain_text(const SoftwareReport& report) {
  return terms_text(report.terms, report.prediction.step_time_s, report.prediction.memory.stage) +
         timed_text(report.timed);
}

std::string to_json(const SoftwareReport& report) {
  const sim::Interval interval = sim::interval_of(report.terms, report.prediction.step_time_s);
  const sim::ShownMemory shown = sim::shown_memory(report.prediction.memory);
  Json times = Json::object(), memory = Json::object();
  for (const sim::Category category : sim::all_categories())
    if (const double seconds = report.step.seconds[category]; seconds > 0)
      times[std::string(sim::name_of(category))] = seconds;
  for (const Part& part : memory_parts(report.prediction.memory)) memory[part.name] = part.value;
  Json adjusted(nullptr);
  if (!report.adjusted_by.empty())
    adjusted = {{"by", report.adjusted_by}, {"without_anchors_s", report.without_anchors_s}};
  return Json({{"software", report.plan.stack.software},
               {"assumed", report.assumed},
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
               {"allocated_bytes", shown.allocated_bytes},
               {"reserved_bytes", shown.reserved_bytes},
               {"device_bytes", shown.device_bytes},
               {"fits", report.prediction.memory.fits()},
               {"memory_verdict",
                verdict_json(report.step.need(), report.plan.stack, report.memory_reserve)},
               {"other_releases", report.other_releases},
               {"refused", refused_json(report.refused)}})
             .dump(2) +
         "\n";
}

}  // namespace meshplan::reports
