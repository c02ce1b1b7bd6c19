#include <fmt/format.h>

#include "core/json_text.hpp"
#include "html/step_json.hpp"
#include "html/template.hpp"
#include "scaling/scaling_fields.hpp"
#include "scaling/words.hpp"

namespace meshplan::reports {
namespace {

using planner::ScalingPoint;

std::vector<double> ends_of(const sim::Interval& interval) {
  return {interval.low_s, interval.high_s};
}

ScaledStepJson step_json(const ScalingPoint& point) {
  const planner::PlanFigures& figures = *point.figures;
  ScaledStepJson json{.plan = figures.description,
                      .global_batch_size = figures.plan.workload.global_batch_size,
                      .seq_len = figures.plan.workload.seq_len,
                      .step_time_s = figures.step.step_time_s,
                      .interval_80_s = ends_of(figures.interval()),
                      .tokens_per_s = figures.tokens_per_s(),
                      .speed_up = point.speed_up,
                      .speed_up_80 = ends_of(point.speed_up_80),
                      .efficiency = point.efficiency,
                      .mfu = figures.step.mfu,
                      .exposed_s = figures.exposed_s(),
                      .bytes_sent = figures.bytes_sent(),
                      .peak_memory_bytes = figures.step.peak_memory_bytes,
                      .capacity_bytes = figures.step.capacity_bytes,
                      .largest_stage = figures.step.largest_stage,
                      .serial_part = point.serial,
                      .lost_to_communication = point.lost_to_communication(),
                      .lost_to_bubble = point.lost_to_bubble(),
                      .lost_to_rest = point.lost_to_rest(),
                      .parts = parts_json(figures.parts),
                      .traffic = traffic_json(figures.traffic),
                      .iso_batch = {}};
  if (point.iso)
    json.iso_batch = {point.iso->global_batch_size, point.iso->efficiency, point.iso->reached};
  return json;
}

MeasuredJson measured_json(const ScalingReport& report) {
  const planner::MeasuredCurve& measured = *report.measured;
  MeasuredJson json{.source = report.measured_source,
                    .points = {},
                    .predicted = measured.predicted,
                    .inside_interval = measured.inside,
                    .mean_absolute_error = measured.mean_absolute_error,
                    .serial_part = {}};
  if (measured.serial) json.serial_part = measured.serial->serial;
  for (const planner::MeasuredPoint& point : measured.points) {
    MeasuredPointJson& one = json.points.emplace_back();
    one.devices = point.devices;
    one.runs = point.runs;
    one.step_time_s = point.step_time_s;
    one.range_s = {point.low_s, point.high_s};
    if (!point.point) continue;
    one.error = point.error;
    one.inside_interval = point.inside;
    one.speed_up = point.speed_up;
    one.efficiency = point.efficiency;
    one.serial_part = point.serial;
  }
  return json;
}

std::vector<LineJson> lines_json(const std::vector<CardLine>& lines) {
  std::vector<LineJson> json;
  for (const CardLine& line : lines) json.push_back({line.name, line.text});
  return json;
}

std::string model_of(const planner::ScalingCurve& curve) {
  return curve.first ? curve.points[*curve.first].figures->plan.model.name : "no plan";
}

}  // namespace

ScalingJson json_of(const ScalingReport& report) {
  const planner::ScalingCurve& curve = report.curve;
  ScalingJson json{.generator = report.generator,
                   .title = fmt::format("{} on {}", model_of(curve), report.cluster.name),
                   .description = what_is_scaled(report),
                   .header = lines_json(header_lines(report)),
                   .card = lines_json(card_lines(report)),
                   .notes = point_notes(report),
                   .mode = std::string(name_of(curve.request.mode)),
                   .axis = curve.axis ? std::string(name_of(*curve.axis)) : "",
                   .least_efficiency = curve.request.least_efficiency,
                   .first_devices = {},
                   .knee_devices = {},
                   .serial_part = {},
                   .trend = {},
                   .next_bottleneck = {},
                   .worth_testing = {},
                   .levels = levels_json(report.cluster),
                   .points = {},
                   .measured = {}};
  if (curve.first) json.first_devices = curve.points[*curve.first].devices;
  if (curve.knee) json.knee_devices = curve.points[*curve.knee].devices;
  if (curve.serial) json.serial_part = curve.serial->serial;
  if (curve.trend) json.trend = name_of(*curve.trend);
  if (curve.next) json.next_bottleneck = sim::name_of(curve.next->part);
  for (const planner::SizeToTest& size : curve.worth_testing)
    json.worth_testing.push_back({curve.points[size.point].devices, size.reasons});
  for (const ScalingPoint& point : curve.points) {
    json.points.push_back({.devices = point.devices,
                           .degree = point.degree,
                           .valid = point.is_valid(),
                           .fits = point.fits(),
                           .rule = point.rule,
                           .message = point.message,
                           .level = point.level,
                           .shares_cores = point.shares_cores,
                           .step = {}});
    if (point.figures) json.points.back().step = step_json(point);
  }
  if (report.measured) json.measured = measured_json(report);
  return json;
}

std::string to_json(const ScalingReport& report) {
  return json_text(write_json(json_of(report))) + "\n";
}

std::string scaling_schema() {
  Json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"title", "what meshplan scale prints"}};
  schema.update(json_schema<ScalingJson>());
  return schema.dump(2) + "\n";
}

std::string to_html(const ScalingReport& report) {
  return filled(scaling_template(), json_text(write_json(json_of(report)), -1), to_text(report));
}

}  // namespace meshplan::reports
