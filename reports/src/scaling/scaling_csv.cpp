#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/csv.hpp"
#include "reports/scaling/scaling_report.hpp"

namespace meshplan::reports {
namespace {

using planner::ScalingPoint;

template <class T>
std::string number(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "";
}

/// "bubble_s"
std::string column_of(sim::StepPart part) {
  return fmt::format("{}_s", sim::name_of(part));
}

std::vector<std::string> titles() {
  std::vector<std::string> all{"devices",
                               "degree",
                               "valid",
                               "fits",
                               "global_batch",
                               "seq_len",
                               "step_time_s",
                               "step_time_low_s",
                               "step_time_high_s",
                               "tokens_per_s",
                               "speed_up",
                               "speed_up_low",
                               "speed_up_high",
                               "efficiency",
                               "mfu",
                               "exposed_s",
                               "bytes_sent",
                               "peak_memory_bytes",
                               "serial_part",
                               "lost_to_communication",
                               "lost_to_bubble",
                               "lost_to_rest",
                               "level",
                               "iso_batch",
                               "measured_step_time_s"};
  for (const sim::StepPart part : sim::all_step_parts()) all.push_back(column_of(part));
  all.insert(all.end(), {"plan", "message"});
  return all;
}

std::optional<double> measured_at(const ScalingReport& report, int devices) {
  if (!report.measured) return std::nullopt;
  for (const planner::MeasuredPoint& point : report.measured->points)
    if (point.devices == devices) return point.step_time_s;
  return std::nullopt;
}

std::vector<std::string> cells_of(const ScalingReport& report, const ScalingPoint& point) {
  std::vector<std::string> row{fmt::format("{}", point.devices), number(point.degree),
                               fmt::format("{}", point.is_valid()),
                               fmt::format("{}", point.fits())};
  const auto add = [&](const auto& value) { row.push_back(fmt::format("{}", value)); };
  const std::string measured = number(measured_at(report, point.devices));
  if (!point.figures) {
    row.resize(titles().size());
    row.back() = point.message;
    row[row.size() - 3 - sim::kNumStepParts] = measured;
    return row;
  }
  const planner::PlanFigures& figures = *point.figures;
  const sim::Interval interval = figures.interval();
  add(figures.plan.workload.global_batch_size);
  add(figures.plan.workload.seq_len);
  for (const double value :
       {figures.step.step_time_s, interval.low_s, interval.high_s, figures.tokens_per_s(),
        point.speed_up, point.speed_up_80.low_s, point.speed_up_80.high_s, point.efficiency,
        figures.step.mfu, figures.exposed_s()})
    add(value);
  row.push_back(number(figures.bytes_sent()));
  add(figures.step.peak_memory_bytes);
  row.push_back(number(point.serial));
  for (const double value :
       {point.lost_to_communication(), point.lost_to_bubble(), point.lost_to_rest()})
    add(value);
  row.push_back(point.level);
  row.push_back(point.iso && point.iso->reached ? fmt::format("{}", point.iso->global_batch_size)
                                                : "");
  row.push_back(measured);
  for (const sim::StepPart part : sim::all_step_parts()) add(figures.parts[part]);
  row.push_back(figures.description);
  row.emplace_back();
  return row;
}

std::string line_of_cells(const std::vector<std::string>& cells) {
  std::vector<std::string> quoted;
  for (const std::string& cell : cells) quoted.push_back(csv_cell(cell));
  return fmt::format("{}\n", fmt::join(quoted, ","));
}

}  // namespace

std::string to_csv(const ScalingReport& report) {
  std::string text = line_of_cells(titles());
  for (const ScalingPoint& point : report.curve.points)
    text += line_of_cells(cells_of(report, point));
  return text;
}

}  // namespace meshplan::reports
