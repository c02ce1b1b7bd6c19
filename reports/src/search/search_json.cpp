#include "reports/search_json.hpp"

#include <variant>

#include "models/model_spec.hpp"
#include "program/plan_file/plan_file.hpp"
#include "reports/extrapolation_report.hpp"
#include "search/ranked_interval.hpp"
#include "search/search_json_fields.hpp"

namespace meshplan::reports {
namespace {

StepJson step_json(const planner::RankedPlan& ranked) {
  const sim::StepPrediction& step = ranked.step();
  StepJson json{
      .description = planner::describe(planner::candidate_of(ranked.plan)),
      .step_time_s = step.step_time_s,
      .source = ranked.simulated ? PredictionOrigin::Simulation : PredictionOrigin::Estimate,
      .interval_80_s = std::nullopt,
      .ties = ranked.ties,
      .mfu = step.mfu,
      .peak_memory_bytes = step.peak_memory_bytes,
      .capacity_bytes = step.capacity_bytes,
      .largest_stage = step.largest_stage,
      .breakdown = {step.seconds},
      .goodput = std::nullopt};
  if (ranked.goodput) json.goodput = goodput_json(*ranked.goodput, step.step_time_s);
  if (const auto interval = interval_of(ranked))
    json.interval_80_s = {interval->low_s, interval->high_s};
  return json;
}

RankedPlanJson ranked_json(const planner::RankedPlan& ranked) {
  RankedPlanJson json{.step = step_json(ranked),
                      .estimated_step_time_s = ranked.estimate.step_time_s};
  json.plan.value = Json::parse(program::to_json(ranked.plan));
  return json;
}

AlternativeJson alternative_json(const planner::Alternative& alternative) {
  AlternativeJson json{.choice = alternative.choice, .reason = alternative.reason};
  if (alternative.plan) {
    json.best_plan = step_json(*alternative.plan);
    json.slower_by_s = alternative.slower_by_s;
  }
  return json;
}

SearchResultJson result_json(const planner::SearchResult& result) {
  SearchResultJson json{
      .incomplete = result.incomplete,
      .counts = result.counts,
      .node_orders = result.node_orders,
      .dispatches = result.dispatches,
      .ranked = {},
      .extrapolations = extrapolation_rows(extrapolations_of(result.ranked.front().plan)),
      .alternatives = {},
      .rejections = result.rejections};
  for (const planner::RankedPlan& plan : result.ranked) json.ranked.push_back(ranked_json(plan));
  for (const planner::Alternative& alternative : result.alternatives)
    json.alternatives.push_back(alternative_json(alternative));
  return json;
}

InfeasibleResultJson result_json(const planner::InfeasibleResult& result) {
  InfeasibleResultJson json{.incomplete = result.incomplete,
                            .counts = result.counts,
                            .nearest_miss = std::nullopt,
                            .suggestions = {},
                            .rejections = result.rejections};
  if (result.nearest_miss) json.nearest_miss = ranked_json(*result.nearest_miss);
  for (const planner::Suggestion& suggestion : result.suggestions)
    json.suggestions.push_back({suggestion.change, ranked_json(suggestion.plan)});
  return json;
}

// ---- schemas

/// A schema as a part of another, whose draft it shares.
Json embedded(const std::string& schema) {
  Json part = Json::parse(schema);
  part.erase("$schema");
  return part;
}

Json parts_of_plan() {
  Json plan = embedded(program::plan_schema());
  for (const std::string part : {"model", "cluster"})  // objects that other readers understand
    plan["properties"][part]["$ref"] = "#/$defs/" + part;
  return {{"plan", std::move(plan)},
          {"model", embedded(models::model_json_schema())},
          {"cluster", Json{{"anyOf", {embedded(sim::cluster_schema()), Json{{"type", "null"}}}}}}};
}

template <class Result>
Json schema_of_result(bool feasible) {
  Json schema = json_schema<Result>();
  schema["properties"]["feasible"]["const"] = feasible;
  return schema;
}

Json root_schema(const std::string& title) {
  return {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}};
}

}  // namespace

std::string to_json(const planner::SearchOutcome& outcome) {
  const Json root =
      std::visit([](const auto& result) { return write_json(result_json(result)); }, outcome);
  return root.dump(2) + "\n";
}

std::string search_schema() {
  Json root = root_schema("result of meshplan plan --json");
  root["oneOf"] = {schema_of_result<SearchResultJson>(true),
                   schema_of_result<InfeasibleResultJson>(false)};
  root["$defs"] = parts_of_plan();
  return root.dump(2) + "\n";
}

std::string plan_file_schema() {
  Json root = root_schema("plan file of meshplan");
  Json parts = parts_of_plan();
  root.update(parts["plan"]);
  parts.erase("plan");
  root["$defs"] = std::move(parts);
  return root.dump(2) + "\n";
}

}  // namespace meshplan::reports
