// What `meshplan simulate --software` shows: a plan as another training stack would run it.
#pragma once

#include <string>
#include <vector>

#include "program/checks/check.hpp"
#include "program/plan/plan.hpp"
#include "sim/anchors/adjustment.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/prediction_terms.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::reports {

struct SoftwareReport {
  program::Plan plan;
  sim::Cluster cluster;
  sim::RunPrediction prediction;
  sim::StepPrediction step;                 // the same in the categories of a plan's step
  std::vector<std::string> recipes;         // of its release that choose: PreparedRun::recipes
  std::vector<std::string> assumed;         // open settings that matter: "gradient_dtype=fp32"
  std::vector<std::string> other_releases;  // whose verdict on memory is another
  std::vector<sim::PredictionTerm> terms;   // of the busiest rank
  std::vector<program::Violation> refused;  // by the stack itself, which would not start
  sim::TimedShares timed;
  double memory_reserve = 0;     // part of a device that a plan should leave free
  double tokens_per_s = 0;       // all ranks together
  std::string adjusted_by;       // the anchors that correct it, in words; empty: none
  double without_anchors_s = 0;  // step time
};

/// @param adjustment  of such runs; null: none
/// @param refused  as planner::refusals_of_stack
/// @throws ConfigError for unknown software and what sim::PreparedRun does not predict
SoftwareReport software_report(const program::Plan& plan, const sim::Cluster& cluster,
                               double memory_reserve, const sim::Adjustment* adjustment = nullptr,
                               std::vector<program::Violation> refused = {});

/// Rules of its own by which the stack of a plan would not start; empty: none.
std::string refused_text(const std::vector<program::Violation>& refused);

std::string to_text(const SoftwareReport& report);
/// The terms of the step, those that know least first.
std::string explain_text(const SoftwareReport& report);
std::string to_json(const SoftwareReport& report);
/// One page that needs no network. @param generator  "meshplan 1.2.3"
std::string to_html(const SoftwareReport& report, const std::string& generator);

}  // namespace meshplan::reports
