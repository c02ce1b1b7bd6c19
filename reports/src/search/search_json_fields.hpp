// The form of a search's result: one declaration for what is written and for its schema.
#pragma once

#include <array>
#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json_fields.hpp"
#include "extrapolation_json.hpp"
#include "failures/failure_fields.hpp"
#include "planner/search/search.hpp"
#include "program/plan/stack_names.hpp"

namespace meshplan {

namespace reports {

enum class PredictionOrigin { Simulation, Estimate };

struct BreakdownJson {
  sim::Breakdown seconds;
};

/// What is shown of any plan.
struct StepJson {
  std::string description;
  double step_time_s = 0;
  PredictionOrigin source = PredictionOrigin::Estimate;
  std::optional<std::vector<double>> interval_80_s;
  bool ties = false;
  double mfu = 0;
  double peak_memory_bytes = 0;
  double capacity_bytes = 0;
  int largest_stage = 0;
  BreakdownJson breakdown;
  std::optional<GoodputJson> goodput;
};

struct RankedPlanJson {
  StepJson step;
  double estimated_step_time_s = 0;
  RawJson plan{.value = {}, .schema = "#/$defs/plan"};
};

struct AlternativeJson {
  std::string choice;
  std::optional<StepJson> best_plan;
  std::optional<double> slower_by_s;
  std::string reason;
};

struct SuggestionJson {
  std::string change;
  RankedPlanJson plan;
};

struct SearchResultJson {
  int schema_version = 1;
  bool feasible = true;
  bool incomplete = false;
  planner::SearchCounts counts;
  std::vector<planner::NodeOrder> node_orders;
  std::vector<planner::DispatchChoice> dispatches;
  std::vector<RankedPlanJson> ranked;
  std::vector<ExtrapolationJson> extrapolations;
  std::vector<AlternativeJson> alternatives;
  std::vector<planner::Rejection> rejections;
};

struct InfeasibleResultJson {
  int schema_version = 1;
  bool feasible = false;
  bool incomplete = false;
  planner::SearchCounts counts;
  std::optional<RankedPlanJson> nearest_miss;
  std::vector<SuggestionJson> suggestions;
  std::vector<planner::Rejection> rejections;
};

template <class Visitor>
void fields(Visitor& v, BreakdownJson& b) {
  for (const sim::Category category : sim::all_categories())
    v.required(sim::name_of(category), b.seconds[category], "seconds", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, StepJson& s) {
  v.required("description", s.description, "the plan in a line");
  v.required("step_time_s", s.step_time_s, "predicted seconds of an optimizer step", at_least(0));
  v.required("source", s.source, "what predicted it: the engine, or the estimator alone");
  v.required("interval_80_s", s.interval_80_s,
             "least and most seconds that are expected in 80 % of cases; null of an estimate");
  v.required("ties", s.ties, "with the first: the prediction cannot tell them apart");
  v.required("mfu", s.mfu, "model FLOPs over those that all ranks could do", at_least(0));
  v.required("peak_memory_bytes", s.peak_memory_bytes, "of the rank with the least room",
             at_least(0));
  v.required("capacity_bytes", s.capacity_bytes, "that this rank may use", at_least(0));
  v.required("largest_stage", s.largest_stage, "pipeline stage of this rank", at_least(0));
  v.required("breakdown_s", s.breakdown, "where the step's seconds go");
  v.stated("goodput", s.goodput, "what failures make of it, if they are asked for");
}

template <class Visitor>
void fields(Visitor& v, RankedPlanJson& r) {
  fields(v, r.step);
  v.required("estimated_step_time_s", r.estimated_step_time_s, "of the estimator, in seconds",
             at_least(0));
  v.required("plan", r.plan, "the whole plan file");
}

template <class Visitor>
void fields(Visitor& v, AlternativeJson& a) {
  v.required("choice", a.choice, "another value of one choice: \"tp=4\"");
  v.required("best_plan", a.best_plan, "the fastest plan that has it; null where there is none");
  v.required(
      "slower_by_s", a.slower_by_s,
      "seconds that it takes longer than the first plan, over goodput if failures are asked for");
  v.required("reason", a.reason, "where the time goes, or what rejects it");
}

template <class Visitor>
void fields(Visitor& v, SuggestionJson& s) {
  v.required("change", s.change, "of what was asked for");
  v.required("plan", s.plan, "which then fits");
}

template <class Visitor>
void fields(Visitor& v, SearchResultJson& r) {
  v.required("schema_version", r.schema_version, "of this form", between(1, 1));
  v.required("feasible", r.feasible, "is there a plan that obeys the rules and fits?");
  v.required("incomplete", r.incomplete,
             "the search was interrupted: counts and plans are of a part of the space");
  v.required("counts", r.counts, "plans of the space");
  if (!(std::same_as<Visitor, JsonWriter> && r.node_orders.empty()))
    v.optional("node_orders", r.node_orders,
               "of a mixed cluster: every order of its node types that was searched");
  if (!(std::same_as<Visitor, JsonWriter> && r.dispatches.empty()))
    v.optional("dispatches", r.dispatches,
               "of another stack that leaves it open: how its experts exchange rows");
  v.required("ranked", r.ranked, "the best plans, first choice first");
  if (!(std::same_as<Visitor, JsonWriter> && r.extrapolations.empty()))
    v.optional("extrapolations", r.extrapolations,
               "prices of the first plan that rest on samples of quite another size");
  v.required("alternatives", r.alternatives, "what other values of each choice would have cost");
  v.required("rejections", r.rejections, "why plans were turned down");
}

template <class Visitor>
void fields(Visitor& v, InfeasibleResultJson& r) {
  v.required("schema_version", r.schema_version, "of this form", between(1, 1));
  v.required("feasible", r.feasible, "is there a plan that obeys the rules and fits?");
  v.required("incomplete", r.incomplete,
             "the search was interrupted: counts and plans are of a part of the space");
  v.required("counts", r.counts, "plans of the space");
  v.required("nearest_miss", r.nearest_miss,
             "the plan that lacks the least memory; null where none obeys the rules");
  v.required("suggestions", r.suggestions, "changes of what was asked for, each with its plan");
  v.required("rejections", r.rejections, "why plans were turned down");
}

}  // namespace reports

template <>
struct EnumNames<reports::PredictionOrigin> {
  static constexpr std::array<std::pair<reports::PredictionOrigin, std::string_view>, 2> value = {
      {{reports::PredictionOrigin::Simulation, "simulation"},
       {reports::PredictionOrigin::Estimate, "estimate"}}};
};

namespace planner {

template <class Visitor>
void fields(Visitor& v, SearchCounts& c) {
  v.required("total", c.total, "of the space: the sum of the following, but for refined",
             at_least(0));
  v.required("broke_a_rule", c.broke_a_rule, "of docs/rules.md", at_least(0));
  v.required("did_not_fit", c.did_not_fit, "into memory", at_least(0));
  v.required("ranked", c.ranked, "obey the rules and fit", at_least(0));
  v.required("bounded", c.bounded, "that a bound tells to be slower, without a price", at_least(0));
  v.required("refined", c.refined, "beyond the space: further variants of good plans", at_least(0));
}

template <class Visitor>
void fields(Visitor& v, NodeOrder& o) {
  v.required("cluster", o.cluster, "its node types, those of the first stages first");
  v.required("step_time_s", o.step_time_s, "of its fastest plan; null where none fits");
}

template <class Visitor>
void fields(Visitor& v, DispatchChoice& c) {
  v.required("expert_dispatch", c.dispatch, "as in the settings of a plan's stack");
  v.required("step_time_s", c.step_time_s, "of its fastest plan; null where none fits");
}

template <class Visitor>
void fields(Visitor& v, Rejection& r) {
  v.required("family", r.family, "what the plans share: \"tp=16\"");
  v.required("rule", r.rule, "id of the rule (docs/rules.md), or \"memory\"");
  v.required("plans", r.plans, "turned down for this reason", at_least(1));
  v.required("message", r.message, "values, rule and the nearest valid choice");
}

}  // namespace planner

}  // namespace meshplan
