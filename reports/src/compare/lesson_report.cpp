#include "reports/lesson_report.hpp"

#include <fmt/format.h>

#include "core/json_fields.hpp"
#include "core/units.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

constexpr int kOperations = 6;  // shown of the last run

Table runs_table(const Trial& trial) {
  Table table{.columns = {{"run", Align::Left},
                          {"ranks"},
                          {"predicted"},
                          {"measured"},
                          {"error"},
                          {"faster"},
                          {"measured"},
                          {"memory"},
                          {"measured"},
                          {"loss"}}};
  const TrialRow& first = trial.rows.front();
  for (const TrialRow& row : trial.rows)
    table.rows.push_back({row.name, std::to_string(row.plan.parallel.world_size()),
                          fmt::format("{:.1f} ms", row.predicted_s * kMilliseconds),
                          fmt::format("{:.1f} ms", row.measured_s * kMilliseconds),
                          signed_percent(row.predicted_s / row.measured_s - 1),
                          fmt::format("{:.2f} x", first.predicted_s / row.predicted_s),
                          fmt::format("{:.2f} x", first.measured_s / row.measured_s),
                          fmt::format("{:.0f} MiB", row.predicted_memory_bytes / kMib),
                          fmt::format("{:.0f} MiB", row.measured_memory_bytes / kMib),
                          fmt::format("{:.5f}", row.last_loss)});
  return table;
}

}  // namespace

std::string to_text(const LessonReport& report) {
  const TrialRow& last = report.trial.rows.back();
  std::string text = to_text(runs_table(report.trial));
  text += fmt::format(
      "step times are medians of {} steps; faster: than the first run; memory: of the fullest "
      "rank\n",
      last.steps);
  if (const std::string busy = busy_cores(report.trial); !busy.empty())
    text += paragraph(busy + "; steps take longer than on a quiet machine");
  text += fmt::format("\nthe last run, {}\n{}", last.name, to_text(report.comparison, kOperations));
  text += "\nLook closer\n";
  for (const std::string& line : report.look) text += paragraph(line, "- ");
  return text;
}

std::string to_json(const LessonReport& report) {
  const Json root{{"schema_version", 1},
                  {"lesson", report.number},
                  {"title", report.title},
                  {"trial", Json::parse(to_json(report.trial))},
                  {"comparison", Json::parse(to_json(report.comparison))},
                  {"look", report.look}};
  return root.dump(2) + "\n";
}

}  // namespace meshplan::reports
