#include "reports/scaling/strategies_report.hpp"

#include <fmt/format.h>

#include "core/json_text.hpp"
#include "explain/step_part_names.hpp"
#include "html/step_json.hpp"
#include "planner/explain/standing.hpp"
#include "planner/search/reasons.hpp"
#include "reports/table.hpp"
#include "scaling/words.hpp"

namespace meshplan::reports {

struct StrategyJson {
  std::string name;
  std::string about;
  bool valid = false;
  bool fits = false;
  std::string rule;
  std::string message;
  std::string plan;
  std::optional<double> step_time_s;
  std::vector<double> interval_80_s;
  std::optional<double> mfu;
  std::optional<double> tokens_per_s;
  std::optional<double> peak_memory_bytes;
  std::optional<double> capacity_bytes;
  std::optional<double> bytes_sent;
  std::optional<double> exposed_s;
  std::optional<double> bubble_s;
  std::string limit;
  std::vector<PartJson> parts;
  std::vector<TrafficJson> traffic;
};

struct StrategiesJson {
  int schema_version = 1;
  std::string model;
  std::string cluster;
  int devices = 0;
  std::int64_t global_batch_size = 0;
  std::int64_t seq_len = 0;
  std::optional<std::string> fastest;
  std::vector<LevelJson> levels;
  std::vector<StrategyJson> strategies;
};

template <class Visitor>
void fields(Visitor& v, StrategyJson& s) {
  v.required("name", s.name, "of the strategy");
  v.required("about", s.about, "what it does");
  v.required("valid", s.valid, "is there such a plan?");
  v.required("fits", s.fits, "beside the memory reserve");
  v.required("rule", s.rule, "that there is none by; empty: there is");
  v.required("message", s.message, "why, with values and the nearest choice");
  v.required("plan", s.plan, "the fastest of the strategy, or the one that lacks least memory");
  v.required("step_time_s", s.step_time_s, "predicted; this and what follows null without a plan");
  v.required("interval_80_s", s.interval_80_s, "the step time lies between, in 80 % of cases");
  v.required("mfu", s.mfu, "model FLOPs over the peak");
  v.required("tokens_per_s", s.tokens_per_s, "of all devices");
  v.required("peak_memory_bytes", s.peak_memory_bytes, "of the fullest stage");
  v.required("capacity_bytes", s.capacity_bytes, "that it may use");
  v.required("bytes_sent", s.bytes_sent, "that a rank sends in a step");
  v.required("exposed_s", s.exposed_s, "communication that nothing hides");
  v.required("bubble_s", s.bubble_s, "waiting for other stages");
  v.required("limit", s.limit, "largest part of the step beside its FLOPs at the peak, or memory");
  v.required("parts", s.parts, "of the step; they sum to it");
  v.required("traffic", s.traffic, "by group, level and operation");
}

template <class Visitor>
void fields(Visitor& v, StrategiesJson& s) {
  v.required("schema_version", s.schema_version, "of this form", between(1, 1));
  v.required("model", s.model, "its name");
  v.required("cluster", s.cluster, "its name");
  v.required("devices", s.devices, "in all", at_least(1));
  v.required("global_batch_size", s.global_batch_size, "sequences of a step", at_least(1));
  v.required("seq_len", s.seq_len, "tokens of a sequence", at_least(1));
  v.required("fastest", s.fastest, "strategy that fits; null: none does");
  v.required("levels", s.levels, "of the fabric");
  v.required("strategies", s.strategies, "simple ones first");
}

namespace {

using planner::PlanFigures;
using planner::StrategyRow;
using sim::StepPart;

std::string limit_of(const StrategyRow& row) {
  const PlanFigures& figures = *row.figures;
  if (!row.fits)
    return fmt::format("memory: {}", planner::fullest_stage(figures).parts.front().name);
  const StepPart part = figures.largest_loss();
  switch (part) {
    case StepPart::Products:
    case StepPart::Attention:
      return fmt::format("{} below peak", sim::name_of(part));
    case StepPart::Streams:
      return "memory-bound ops";
    case StepPart::Slowdown:
      return "slowed beside comm.";
    case StepPart::Sends:
      return "exposed pp sends";
    default:
      return std::string(words_for(part));
  }
}

std::string share(double seconds, const PlanFigures& figures) {
  return percent(seconds / figures.step.step_time_s);
}

Table strategies_table(const std::vector<StrategyRow>& rows) {
  Table table{.columns = {{"strategy", Align::Left},
                          {"step time"},
                          {"MFU"},
                          {"memory", Align::Right},
                          {"sent"},
                          {"exposed"},
                          {"bubble"},
                          {"limited by", Align::Left}},
              .rows = {}};
  for (const StrategyRow& row : rows) {
    if (!row.figures) {
      table.rows.push_back({row.strategy.name, "no plan"});
      continue;
    }
    const PlanFigures& figures = *row.figures;
    table.rows.push_back(
        {row.strategy.name, planner::format_seconds(figures.step.step_time_s),
         percent(figures.step.mfu),
         planner::format_bytes(figures.step.peak_memory_bytes) + (row.fits ? "" : " !"),
         figures.bytes_sent() ? planner::format_bytes(*figures.bytes_sent()) : "-",
         share(figures.exposed_s(), figures), share(figures.parts[StepPart::Bubble], figures),
         limit_of(row)});
  }
  return table;
}

std::vector<CardLine> plan_lines(const std::vector<StrategyRow>& rows) {
  std::vector<CardLine> lines;
  for (const StrategyRow& row : rows)
    lines.push_back({row.strategy.name, row.figures ? row.figures->description
                                                    : fmt::format("no plan: {}", row.message)});
  return lines;
}

std::string summary_of(const std::vector<StrategyRow>& rows) {
  const auto fastest = planner::fastest_of(rows);
  if (!fastest) return "nothing fits (!: lacks memory; the plan that lacks least is shown)\n";
  const StrategyRow& row = rows[*fastest];
  return to_text(std::vector<CardLine>{
      {"fastest", fmt::format("{} ({}): {}, {} a step (80 % interval {})", row.strategy.name,
                              row.strategy.about, row.figures->description,
                              planner::format_seconds(row.figures->step.step_time_s),
                              seconds_between(row.figures->interval()))}});
}

StrategyJson strategy_json(const StrategyRow& row) {
  StrategyJson json{.name = row.strategy.name,
                    .about = row.strategy.about,
                    .valid = row.figures.has_value(),
                    .fits = row.fits,
                    .rule = row.rule,
                    .message = row.message};
  if (!row.figures) return json;
  const PlanFigures& figures = *row.figures;
  const sim::Interval interval = figures.interval();
  json.plan = figures.description;
  json.step_time_s = figures.step.step_time_s;
  json.interval_80_s = {interval.low_s, interval.high_s};
  json.mfu = figures.step.mfu;
  json.tokens_per_s = figures.tokens_per_s();
  json.peak_memory_bytes = figures.step.peak_memory_bytes;
  json.capacity_bytes = figures.step.capacity_bytes;
  json.bytes_sent = figures.bytes_sent();
  json.exposed_s = figures.exposed_s();
  json.bubble_s = figures.parts[StepPart::Bubble];
  json.limit = limit_of(row);
  json.parts = parts_json(figures.parts);
  json.traffic = traffic_json(figures.traffic);
  return json;
}

}  // namespace

std::string to_text(const StrategiesReport& report) {
  std::string text = summary_of(report.rows) + "\n" + to_text(strategies_table(report.rows));
  text +=
      "sent: bytes that a rank sends in a step; -: of other software they are not counted\n"
      "exposed: communication that nothing hides\n"
      "!: lacks memory; of a strategy without a plan that fits, the one that lacks least\n";
  return text +
         "\nthe plan of each (micro-batch, recompute, schedule and open degrees searched)\n" +
         to_text(plan_lines(report.rows));
}

std::string to_json(const StrategiesReport& report) {
  const planner::SearchRequest& request = report.request;
  StrategiesJson json{.model = request.model.name,
                      .cluster = request.cluster.name,
                      .devices = request.cluster.num_ranks(),
                      .global_batch_size = request.workload.global_batch_size,
                      .seq_len = request.workload.seq_len,
                      .fastest = {},
                      .levels = levels_json(request.cluster),
                      .strategies = {}};
  if (const auto fastest = planner::fastest_of(report.rows))
    json.fastest = report.rows[*fastest].strategy.name;
  for (const StrategyRow& row : report.rows) json.strategies.push_back(strategy_json(row));
  return json_text(write_json(json)) + "\n";
}

std::string strategies_schema() {
  Json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"title", "what meshplan strategies prints"}};
  schema.update(json_schema<StrategiesJson>());
  return schema.dump(2) + "\n";
}

}  // namespace meshplan::reports
