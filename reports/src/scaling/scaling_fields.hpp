// What a scaling curve holds as JSON: one declaration for what is written, for its schema and for
// the page's scripts. Seconds and bytes throughout.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "html/page_fields.hpp"
#include "reports/scaling/scaling_report.hpp"

namespace meshplan::reports {

struct IsoBatchJson {
  std::int64_t global_batch_size = 0;
  double efficiency = 0;
  bool reached = false;
};

/// Of a size that has a plan.
struct ScaledStepJson {
  std::string plan;
  std::int64_t global_batch_size = 0;
  std::int64_t seq_len = 0;
  double step_time_s = 0;
  std::vector<double> interval_80_s;
  double tokens_per_s = 0;
  double speed_up = 0;
  std::vector<double> speed_up_80;
  double efficiency = 0;
  double mfu = 0;
  double exposed_s = 0;
  std::optional<double> bytes_sent;
  double peak_memory_bytes = 0;
  double capacity_bytes = 0;
  int largest_stage = 0;
  std::optional<double> serial_part;
  double lost_to_communication = 0;
  double lost_to_bubble = 0;
  double lost_to_rest = 0;
  std::vector<PartJson> parts;
  std::vector<TrafficJson> traffic;
  std::optional<IsoBatchJson> iso_batch;
};

struct ScalingPointJson {
  int devices = 0;
  std::optional<int> degree;
  bool valid = false;
  bool fits = false;
  std::string rule;
  std::string message;
  std::string level;
  bool shares_cores = false;
  std::optional<ScaledStepJson> step;
};

struct MeasuredPointJson {
  int devices = 0;
  int runs = 0;
  double step_time_s = 0;
  std::vector<double> range_s;
  std::optional<double> error;
  std::optional<bool> inside_interval;
  std::optional<double> speed_up;
  std::optional<double> efficiency;
  std::optional<double> serial_part;
};

struct MeasuredJson {
  std::string source;
  std::vector<MeasuredPointJson> points;
  int predicted = 0;
  int inside_interval = 0;
  double mean_absolute_error = 0;
  std::optional<double> serial_part;
};

struct SizeToTestJson {
  int devices = 0;
  std::vector<std::string> reasons;
};

struct ScalingJson {
  int schema_version = 1;
  std::string generator;
  std::string title;
  std::string description;
  std::vector<LineJson> header;
  std::vector<LineJson> card;
  std::vector<std::string> notes;
  std::string mode;
  std::string axis;
  double least_efficiency = 0;
  std::optional<int> first_devices;
  std::optional<int> knee_devices;
  std::optional<double> serial_part;
  std::string trend;
  std::string next_bottleneck;
  std::vector<SizeToTestJson> worth_testing;
  std::vector<LevelJson> levels;
  std::vector<ScalingPointJson> points;
  std::optional<MeasuredJson> measured;
};

template <class Visitor>
void fields(Visitor& v, IsoBatchJson& i) {
  v.required("global_batch_size", i.global_batch_size, "sequences of a step", at_least(1));
  v.required("efficiency", i.efficiency, "with them", at_least(0));
  v.required("reached", i.reached, "false: the most that was tried does not keep it");
}

template <class Visitor>
void fields(Visitor& v, ScaledStepJson& s) {
  v.required("plan", s.plan, "in a line");
  v.required("global_batch_size", s.global_batch_size, "sequences of a step", at_least(1));
  v.required("seq_len", s.seq_len, "tokens of a sequence", at_least(1));
  v.required("step_time_s", s.step_time_s, "predicted", at_least(0));
  v.required("interval_80_s", s.interval_80_s, "the step time lies between, in 80 % of cases");
  v.required("tokens_per_s", s.tokens_per_s, "of all devices", at_least(0));
  v.required("speed_up", s.speed_up, "model FLOPs a second against the first size", at_least(0));
  v.required("speed_up_80", s.speed_up_80, "it lies between, in 80 % of cases");
  v.required("efficiency", s.efficiency, "speed-up over the ratio of devices", at_least(0));
  v.required("mfu", s.mfu, "model FLOPs over the peak", at_least(0));
  v.required("exposed_s", s.exposed_s, "communication that nothing hides");
  v.required("bytes_sent", s.bytes_sent, "that a rank sends in a step; null: of other software",
             at_least(0));
  v.required("peak_memory_bytes", s.peak_memory_bytes, "of the fullest stage", at_least(0));
  v.required("capacity_bytes", s.capacity_bytes, "that it may use", at_least(0));
  v.required("largest_stage", s.largest_stage, "with the least room", at_least(0));
  v.required("serial_part", s.serial_part,
             "that explains the speed-up (Karp and Flatt 1990); null at the first size");
  v.required("lost_to_communication", s.lost_to_communication, "part of the efficiency");
  v.required("lost_to_bubble", s.lost_to_bubble, "part of the efficiency");
  v.required("lost_to_rest", s.lost_to_rest, "part of the efficiency");
  v.required("parts", s.parts, "of the step; they sum to it");
  v.required("traffic", s.traffic, "by group and level; `level` is an index into `levels`");
  v.required("iso_batch", s.iso_batch,
             "that keeps the least efficiency (Grama, Gupta and Kumar 1993); null: not asked for");
}

template <class Visitor>
void fields(Visitor& v, ScalingPointJson& p) {
  v.required("devices", p.devices, "in all", at_least(1));
  v.required("degree", p.degree, "of the axis; null of a search, or where it is no integer");
  v.required("valid", p.valid, "is there such a plan?");
  v.required("fits", p.fits, "into memory");
  v.required("rule", p.rule, "that there is none by; empty: there is");
  v.required("message", p.message, "why, with values and the nearest choice");
  v.required("level", p.level, "outermost level of the fabric that the axis needs; empty: none");
  v.required("shares_cores", p.shares_cores, "ranks on processors outnumber the cores");
  v.required("step", p.step, "null without a plan");
}

template <class Visitor>
void fields(Visitor& v, MeasuredPointJson& p) {
  v.required("devices", p.devices, "in all", at_least(1));
  v.required("runs", p.runs, "of this size", at_least(1));
  v.required("step_time_s", p.step_time_s, "the median of the runs", at_least(0));
  v.required("range_s", p.range_s, "fastest and slowest run");
  v.required("error", p.error, "predicted over measured, less 1; null without a prediction");
  v.required("inside_interval", p.inside_interval, "the predicted one; null without");
  v.required("speed_up", p.speed_up, "against the smallest measured size that has a plan");
  v.required("efficiency", p.efficiency, "of it");
  v.required("serial_part", p.serial_part, "that explains it");
}

template <class Visitor>
void fields(Visitor& v, MeasuredJson& m) {
  v.required("source", m.source, "where the measurements come from");
  v.required("points", m.points, "by devices");
  v.required("predicted", m.predicted, "points with a prediction", at_least(0));
  v.required("inside_interval", m.inside_interval, "of these", at_least(0));
  v.required("mean_absolute_error", m.mean_absolute_error, "of these", at_least(0));
  v.required("serial_part", m.serial_part, "that explains all best; null of one size");
}

template <class Visitor>
void fields(Visitor& v, SizeToTestJson& s) {
  v.required("devices", s.devices, "of the size", at_least(1));
  v.required("reasons", s.reasons, "to test it");
}

template <class Visitor>
void fields(Visitor& v, ScalingJson& s) {
  v.required("schema_version", s.schema_version, "of this form", between(1, 1));
  v.required("generator", s.generator, "what wrote it");
  v.required("title", s.title, "of the page");
  v.required("description", s.description, "what is scaled");
  v.required("header", s.header, "model, cluster, step, plan of the first size");
  v.required("card", s.card, "what the curve says, a sentence each");
  v.required("notes", s.notes, "on sizes without a plan, or that lack memory");
  v.required("mode", s.mode, "strong or weak");
  v.required("axis", s.axis, "dp, tp, pp, cp or ep; empty: each size is the best plan of a search");
  v.required("least_efficiency", s.least_efficiency, "of the knee", between(0, 1));
  v.required("first_devices", s.first_devices, "what ratios are of; null: no size has a plan");
  v.required("knee_devices", s.knee_devices, "largest size up to which all keep it; null: none");
  v.required("serial_part", s.serial_part,
             "that explains all speed-ups best (Amdahl 1967, Gustafson 1988)");
  v.required("trend", s.trend, "of single points' serial parts: rising, constant or falling");
  v.required("next_bottleneck", s.next_bottleneck, "part of a step, as `parts` name it");
  v.required("worth_testing", s.worth_testing, "sizes, by devices");
  v.required("levels", s.levels, "of the fabric");
  v.required("points", s.points, "by devices");
  v.required("measured", s.measured, "null without measurements");
}

ScalingJson json_of(const ScalingReport& report);

}  // namespace meshplan::reports
