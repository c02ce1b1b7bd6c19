#include <cmath>
#include <fmt/format.h>

#include "planner/search/reasons.hpp"
#include "reports/scaling/scaling_report.hpp"
#include "reports/table.hpp"
#include "scaling/words.hpp"

namespace meshplan::reports {
namespace {

using planner::PlanFigures;
using planner::ScalingPoint;
using sim::StepPart;

std::string axis_title(const planner::ScalingCurve& curve) {
  return curve.axis ? std::string(name_of(*curve.axis)) : "";
}

std::string degree_text(const ScalingPoint& point) {
  return point.degree ? grouped(*point.degree) : "-";
}

std::vector<std::string> first_cells(const planner::ScalingCurve& curve,
                                     const ScalingPoint& point) {
  std::vector<std::string> row{grouped(point.devices)};
  if (curve.axis) row.push_back(degree_text(point));
  return row;
}

Table with_first_columns(const planner::ScalingCurve& curve) {
  Table table{.columns = {{"devices"}}, .rows = {}};
  if (curve.axis) table.columns.push_back({axis_title(curve)});
  return table;
}

Table points_table(const planner::ScalingCurve& curve) {
  Table table = with_first_columns(curve);
  for (const char* title : {"step time", "80 % interval", "tokens/s", "speed-up", "efficiency",
                            "MFU", "exposed", "memory"})
    table.columns.push_back({title});
  for (const ScalingPoint& point : curve.points) {
    std::vector<std::string> row = first_cells(curve, point);
    if (const auto& figures = point.figures) {
      for (std::string& cell : std::vector{
               planner::format_seconds(figures->step.step_time_s),
               seconds_between(figures->interval()), short_count(figures->tokens_per_s()),
               fmt::format("{:.4g}", point.speed_up), percent(point.efficiency),
               percent(figures->step.mfu),
               percent(figures->exposed_s() / figures->step.step_time_s),
               planner::format_bytes(figures->step.peak_memory_bytes) + (point.fits() ? "" : " !")})
        row.push_back(std::move(cell));
    } else {
      row.emplace_back("no plan");
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Parts of a step that a column sums up.
struct Slice {
  const char* title;
  std::vector<StepPart> parts;
};
const std::vector<Slice> kSlices{{"compute",
                                  {StepPart::Ideal, StepPart::Beyond, StepPart::Products,
                                   StepPart::Attention, StepPart::Streams, StepPart::Slowdown}},
                                 {"recompute", {StepPart::Recompute}},
                                 {"tp, sp", {StepPart::Tensor}},
                                 {"cp", {StepPart::Context}},
                                 {"ep", {StepPart::Experts}},
                                 {"pp", {StepPart::Sends}},
                                 {"dp", {StepPart::Data}},
                                 {"bubble", {StepPart::Bubble}},
                                 {"optimizer", {StepPart::Optimizer, StepPart::Offload}},
                                 {"rest", {StepPart::Host, StepPart::Waits, StepPart::Overhead}}};

double share_of(const PlanFigures& figures, const Slice& slice) {
  double sum = 0;
  for (const StepPart part : slice.parts) sum += figures.parts[part];
  return sum / figures.step.step_time_s;
}

bool is_used(const planner::ScalingCurve& curve, const Slice& slice) {
  constexpr double kShown = 5e-4;
  for (const ScalingPoint& point : curve.points)
    if (point.figures && share_of(*point.figures, slice) > kShown) return true;
  return false;
}

Table shares_table(const planner::ScalingCurve& curve) {
  Table table = with_first_columns(curve);
  for (const Slice& slice : kSlices)
    if (is_used(curve, slice)) table.columns.push_back({slice.title});
  for (const ScalingPoint& point : curve.points) {
    if (!point.figures) continue;
    std::vector<std::string> row = first_cells(curve, point);
    for (const Slice& slice : kSlices)
      if (is_used(curve, slice)) row.push_back(percent(share_of(*point.figures, slice)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string iso_text(const ScalingPoint& point) {
  if (!point.iso) return "-";
  return (point.iso->reached ? "" : "> ") + grouped(point.iso->global_batch_size);
}

std::string serial_text(const std::optional<double>& serial) {
  return serial ? fmt::format("{:.3g} %", 100 * *serial) : "-";
}

Table losses_table(const planner::ScalingCurve& curve) {
  Table table = with_first_columns(curve);
  for (const char* title : {"lost", "communication", "bubble", "rest", "serial part"})
    table.columns.push_back({title});
  table.columns.push_back({"link", Align::Left});
  if (curve.request.iso_efficiency) table.columns.push_back({"iso batch"});
  for (const ScalingPoint& point : curve.points) {
    if (!point.figures) continue;
    std::vector<std::string> row = first_cells(curve, point);
    for (const double lost : {1 - point.efficiency, point.lost_to_communication(),
                              point.lost_to_bubble(), point.lost_to_rest()})
      row.push_back(percent(lost == 0 ? 0 : lost));
    row.push_back(serial_text(point.serial));
    row.push_back(point.level.empty() ? "-" : point.level);
    if (curve.request.iso_efficiency) row.push_back(iso_text(point));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table plans_table(const planner::ScalingCurve& curve) {
  Table table{.columns = {{"devices"}, {"plan", Align::Left}}, .rows = {}};
  for (const ScalingPoint& point : curve.points)
    if (point.figures) table.rows.push_back({grouped(point.devices), point.figures->description});
  return table;
}

Table measured_table(const ScalingReport& report) {
  Table table{.columns = {{"devices"},
                          {"runs"},
                          {"predicted"},
                          {"80 % interval"},
                          {"measured"},
                          {"error"},
                          {"inside"},
                          {"speed-up"},
                          {"efficiency"},
                          {"serial part"}},
              .rows = {}};
  for (const planner::MeasuredPoint& point : report.measured->points) {
    std::vector<std::string> row{grouped(point.devices), std::to_string(point.runs)};
    if (point.point) {
      const PlanFigures& figures = *report.curve.points[*point.point].figures;
      for (std::string& cell : std::vector{
               planner::format_seconds(figures.step.step_time_s),
               seconds_between(figures.interval()), planner::format_seconds(point.step_time_s),
               signed_percent(point.error), std::string(point.inside ? "yes" : "no"),
               fmt::format("{:.4g}", point.speed_up), percent(point.efficiency),
               serial_text(point.serial)})
        row.push_back(std::move(cell));
    } else {
      row.insert(row.end(), {"no plan", "", planner::format_seconds(point.step_time_s)});
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::string to_text(const ScalingReport& report) {
  const planner::ScalingCurve& curve = report.curve;
  std::string text = to_text(header_lines(report));
  if (!text.empty()) text += "\n";
  text += to_text(card_lines(report)) + "\n" + to_text(points_table(curve));
  for (const std::string& note : point_notes(report))
    text += to_text(std::vector<CardLine>{{"", note}});
  if (!curve.first) return text;
  text += "\nwhere the step goes (communication that nothing hides)\n" +
          to_text(shares_table(curve), 2);
  text += fmt::format("\nefficiency lost since {} devices\n",
                      grouped(curve.points[*curve.first].devices)) +
          to_text(losses_table(curve), 2);
  if (!curve.axis) text += "\nbest plans\n" + to_text(plans_table(curve), 2);
  if (report.measured)
    text += fmt::format("\nmeasured ({})\n", report.measured_source) +
            to_text(measured_table(report), 2);
  return text;
}

}  // namespace meshplan::reports
