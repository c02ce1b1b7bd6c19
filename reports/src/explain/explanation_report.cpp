#include "reports/explain/explanation_report.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/json_text.hpp"
#include "explain/mfu_convention.hpp"
#include "explain/standing_json.hpp"
#include "explain/standing_text.hpp"
#include "explain/step_part_names.hpp"
#include "plan_lines.hpp"
#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"
#include "reports/table.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::reports {
namespace {

using Json = nlohmann::ordered_json;
using sim::StepPart;

constexpr double kShown = 5e-5;  // of the step: smaller parts would be 0.0 %

bool is_shown(const sim::StepParts& parts, StepPart part) {
  return part == StepPart::Ideal || std::abs(parts[part]) > kShown * parts.total();
}

Table waterfall_of(const planner::PricedPlan& priced) {
  const sim::StepParts& parts = priced.parts;
  const double step = priced.step.step_time_s;
  Table table{.columns = {{"", Align::Left}, {"time"}, {"share"}, {"MFU so far"}}, .rows = {}};
  double sum = 0, left_out = 0;
  const auto add = [&](std::string name, double seconds) {
    sum += seconds;
    table.rows.push_back({std::move(name), planner::format_seconds(seconds),
                          percent(seconds / step), percent(parts[StepPart::Ideal] / sum)});
  };
  for (const StepPart part : sim::all_step_parts())
    if (is_shown(parts, part))
      add(std::string(words_for(part)), parts[part]);
    else
      left_out += parts[part];
  if (std::abs(left_out) > 0) add("what is less than 0.01 % each", left_out);
  table.rows.push_back(
      {"step time", planner::format_seconds(step), percent(1), percent(priced.step.mfu)});
  return table;
}

std::string memory_text(const planner::Explanation& explanation, double memory_reserve) {
  const planner::PricedPlan& priced = explanation.priced;
  const double factor = explanation.memory_factor;
  std::string text =
      fmt::format("\nmemory of stage {}: {} of {} with {:.3g} % free: {}\n",
                  priced.step.largest_stage, planner::format_bytes(priced.step.peak_memory_bytes),
                  planner::format_bytes(priced.step.capacity_bytes), 100 * memory_reserve,
                  largest_parts(planner::fullest_stage(priced)));
  return text + fmt::format("  {} with {:.3g} times as much memory\n",
                            factor > 1 ? "does not fit; would" : "fits, and still would", factor);
}

std::string sensitivity_text(const planner::Explanation& explanation) {
  const double step = explanation.priced.step.step_time_s;
  std::vector<planner::Sensitivity> sorted = explanation.sensitivities;
  std::ranges::stable_sort(sorted, std::ranges::greater{}, [](const planner::Sensitivity& s) {
    return std::abs(s.seconds_of_10_percent);
  });
  Table table{.columns = {{"", Align::Left}, {""}, {""}}, .rows = {}};
  for (const planner::Sensitivity& s : sorted)
    table.rows.push_back({s.figure, planner::signed_seconds(s.seconds_of_10_percent),
                          signed_percent(s.seconds_of_10_percent / step)});
  return "\nwhat 10 % more of a figure does to the step time, as estimated (--set FIGURE=1.1)\n" +
         to_text(table, 2);
}

std::string rival_text(const planner::Explanation& explanation, double memory_reserve) {
  if (!explanation.rival) return "";
  const planner::Rival& rival = *explanation.rival;
  const std::string name = planner::describe(planner::candidate_of(rival.plan));
  std::string text = fmt::format("\nagainst {}\n  {}\n", name,
                                 standing_text(rival.standing, explanation.priced, memory_reserve));
  return text + turning_points_text(rival.turning_points, "it");
}

Json sensitivities_json(const std::vector<planner::Sensitivity>& sensitivities) {
  Json json = Json::object();
  for (const planner::Sensitivity& s : sensitivities) json[s.figure] = s.seconds_of_10_percent;
  return json;
}

}  // namespace

std::string thumb_line(const planner::ThumbStanding& thumb, const planner::TimedPlan& first,
                       double memory_reserve) {
  if (!thumb.rule.plan) return fmt::format("rule of thumb  no plan: {}\n", thumb.rule.reason);
  const std::string name = planner::describe(planner::candidate_of(*thumb.rule.plan));
  if (!thumb.standing)
    return fmt::format("rule of thumb  {}: {:.2f} times as long, as estimated\n", name,
                       *thumb.estimated_times);
  return fmt::format("rule of thumb  {}: {}\n", name,
                     standing_text(*thumb.standing, first, memory_reserve));
}

std::string turning_points_text(const std::vector<planner::TurningPoint>& points,
                                const std::string& rival) {
  if (points.empty()) return "";
  std::vector<std::string> some, none;
  for (const planner::TurningPoint& point : points)
    if (point.factor)
      some.push_back(fmt::format("{} x {:.3g}", point.figure, *point.factor));
    else
      none.push_back(point.figure);
  std::string text;
  if (!some.empty())
    text += fmt::format("  {} would be as fast with {}\n", rival, fmt::join(some, ", or with "));
  if (!none.empty())
    text += fmt::format("  no factor from 1/8 to 8 makes {} as fast for any of {}\n", rival,
                        fmt::join(none, ", "));
  return text;
}

std::string to_text(const planner::Explanation& explanation, const planner::PricedOn& on) {
  const planner::PricedPlan& priced = explanation.priced;
  const bool own = priced.plan.stack.is_own();
  std::string text = plan_header(priced.plan, on.cluster);
  if (!own) text += software_line(priced.plan.stack);
  text += fmt::format("\nfrom the model's FLOPs to the step time ({})\n",
                      own ? "mean over all ranks" : "of the busiest rank");
  text += to_text(waterfall_of(priced), 2) + kMfuConvention + mfu_peak(priced) + "\n";
  text += memory_text(explanation, on.memory_reserve) + sensitivity_text(explanation);
  text += rival_text(explanation, on.memory_reserve);
  return text + "\n" + thumb_line(explanation.thumb, priced, on.memory_reserve);
}

std::string to_json(const planner::Explanation& explanation) {
  Json json{{"schema_version", 1}, {"software", explanation.priced.plan.stack.software}};
  json.update(priced_json(explanation.priced));
  json["peak_flop_per_s"] = explanation.priced.peak_flop_per_s;
  json["memory_factor"] = explanation.memory_factor;
  json["seconds_of_10_percent"] = sensitivities_json(explanation.sensitivities);
  json["rule_of_thumb"] = thumb_json(explanation.thumb, explanation.priced);
  if (explanation.rival) {
    json["against"] = standing_json(explanation.rival->standing, explanation.priced);
    json["against"]["turning_points"] = turning_points_json(explanation.rival->turning_points);
  }
  return json_text(json) + "\n";
}

}  // namespace meshplan::reports
