#include "plan_lines.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"
#include "program/plan_file/stack_settings.hpp"
#include "reports/search_report.hpp"
#include "sim/stacks/stack_memory.hpp"

namespace meshplan::reports {

std::string empty_sequences_words(const program::Plan& plan) {
  const std::int64_t empty = plan.empty_sequences();
  if (empty == 0) return "";
  return fmt::format(", {} of {} sequences empty", empty, plan.workload.global_batch_size + empty);
}

std::string plan_header(const program::Plan& plan, const sim::Cluster& cluster) {
  return fmt::format("model    {}\ncluster  {}\nstep     {}\nplan     {}, {} micro-batch{}{}{}\n",
                     model_line(plan.model), cluster_line(cluster), workload_line(plan.workload),
                     planner::describe(planner::candidate_of(plan)), plan.num_microbatches(),
                     plan.num_microbatches() == 1 ? "" : "es", empty_sequences_words(plan),
                     plan.deterministic ? "" : ", not deterministic");
}

std::string software_line(const program::Stack& stack) {
  return fmt::format("software {}: predicted as its runs are, not operation by operation\n",
                     stack.software) +
         settings_line(stack);
}

std::string settings_line(const program::Stack& stack) {
  const std::vector<std::string> stated = stated_settings(stack.settings);
  return stated.empty() ? "" : fmt::format("stack    {}\n", fmt::join(stated, ", "));
}

std::string other_releases_line(const std::vector<std::string>& releases) {
  if (releases.empty()) return "";
  return fmt::format("  as the newest release; another says otherwise: {}\n",
                     fmt::join(releases, "; "));
}

std::string reserve_verdict(double peak, double usable, double reserve) {
  const std::string part = fmt::format("the reserve of {:.3g} %", 100 * reserve);
  if (peak <= usable) return "keeps " + part;
  return fmt::format("breaks {}: {}", part, planner::shortage(peak, usable));
}

Table times_table(const sim::StepPrediction& step) {
  Table table{.columns = {{"", Align::Left}, {"time"}, {"share"}}, .rows = {}};
  for (const sim::Category category : sim::all_categories())
    if (const double seconds = step.seconds[category]; seconds > 0)
      table.rows.push_back({std::string(sim::name_of(category)), planner::format_seconds(seconds),
                            percent(seconds / step.step_time_s)});
  return table;
}

std::string memory_verdict(const sim::MemoryNeed& need, int stage, const program::Stack& stack,
                           double reserve, const std::string& beside) {
  const double margin = sim::memory_margin(stack, reserve);
  const sim::MemoryVerdict verdict = sim::verdict_of(need, margin);
  if (verdict == sim::MemoryVerdict::DoesNotFit)
    return fmt::format("does not fit: stage {} needs {} ({} too much)\n", stage,
                       planner::shortage(need.bytes, need.capacity_bytes, need.of_host),
                       planner::format_bytes(-need.room_bytes()));
  const double left = need.room_bytes() / need.capacity_bytes;
  const std::string why =
      margin <= reserve ? reserve_verdict(need.bytes, (1 - reserve) * need.capacity_bytes, reserve)
                        : fmt::format(
                              "leaves {:.1f} %, {} than the {:.1f} % within which four of "
                              "five such predictions are right",
                              100 * left, left < margin ? "less" : "more", 100 * margin);
  return fmt::format("{}: {} of {} on stage {}{}; {}\n", sim::name_of(verdict),
                     planner::format_bytes(need.bytes), planner::format_bytes(need.capacity_bytes),
                     stage, beside, why);
}

std::string assumed_line(const SoftwareReport& report) {
  if (report.assumed.empty()) return "";
  return fmt::format("assumed  {} (what {} does by itself; --stack NAME=VALUE says otherwise)\n",
                     fmt::join(report.assumed, ", "), report.plan.stack.software);
}

std::string shown_memory_line(const sim::ShownMemory& shown) {
  return fmt::format(
      "allocated {}, reserved {}, on the device {}\n", planner::format_bytes(shown.allocated_bytes),
      planner::format_bytes(shown.reserved_bytes), planner::format_bytes(shown.device_bytes));
}

nlohmann::ordered_json verdict_json(const sim::MemoryNeed& need, const program::Stack& stack,
                                    double reserve) {
  const double margin = sim::memory_margin(stack, reserve);
  return {{"verdict", sim::key_of(sim::verdict_of(need, margin))},
          {"room_bytes", need.room_bytes()},
          {"margin_bytes", margin * need.capacity_bytes}};
}

}  // namespace meshplan::reports
