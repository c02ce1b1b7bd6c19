#include "reports/explain/why_not_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/json_text.hpp"
#include "explain/standing_json.hpp"
#include "explain/standing_text.hpp"
#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

std::string changes_line(const std::vector<planner::ChoiceChange>& changes) {
  std::vector<std::string> words;
  for (const planner::ChoiceChange& change : changes)
    words.push_back(fmt::format("{} {} -> {}", change.name, change.before, change.after));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string time_and_memory(const planner::TimedPlan& priced) {
  return fmt::format("{}, MFU {}, {} of {} on stage {}",
                     planner::format_seconds(priced.step.step_time_s), percent(priced.step.mfu),
                     planner::format_bytes(priced.step.peak_memory_bytes),
                     planner::format_bytes(priced.step.capacity_bytes), priced.step.largest_stage);
}

std::string description(const program::Plan& plan) {
  return planner::describe(planner::candidate_of(plan));
}

}  // namespace

std::string to_text(const planner::WhyNot& answer, const planner::TimedPlan& first,
                    double memory_reserve) {
  const auto& [changed, standing] = answer;
  // Degrees that leave ranks over make no whole plan.
  const std::string text =
      changed.broken ? "why not\n" : fmt::format("why not {}\n", description(changed.plan));
  Table table{.columns = {{"", Align::Left}, {"", Align::Left}}, .rows = {}};
  if (!changed.asked.empty()) table.rows.push_back({"changed", changes_line(changed.asked)});
  if (!changed.followed.empty()) table.rows.push_back({"follows", changes_line(changed.followed)});
  table.rows.push_back(
      {"given", fmt::format("{}: {}", description(first.plan), time_and_memory(first))});
  if (!first.step.fits(memory_reserve))
    table.rows.push_back({"", "which does not fit beside the reserve itself"});
  if (standing.priced) table.rows.push_back({"then", time_and_memory(*standing.priced)});
  table.rows.push_back({"answer", standing_text(standing, first, memory_reserve)});
  return text + to_text(table, 2);
}

std::string to_json(const planner::WhyNot& answer, const planner::TimedPlan& first) {
  nlohmann::ordered_json json{{"schema_version", 1}};
  json.update(why_not_json(answer, first));
  return json_text(json) + "\n";
}

}  // namespace meshplan::reports
