// What `meshplan simulate --software` shows: a plan as another training stack would run it.
#pragma once

#include <string>
#include <vector>

#include "program/plan/plan.hpp"
#include "sim/anchors/adjustment.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/prediction_terms.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::reports {

struct SoftwareReport {
  program::Plan plan;
  sim::Cluster cluster;
  std::string software;
  sim::RunPrediction prediction;
  sim::StepPrediction step;                // the same in the categories of a plan's step
  std::vector<std::string> recipes;        // of its release that choose: PreparedRun::recipes
  std::vector<sim::PredictionTerm> terms;  // of the busiest rank
  sim::TimedShares timed;
  double memory_reserve = 0;     // part of a device that a plan should leave free
  double tokens_per_s = 0;       // all ranks together
  std::string adjusted_by;       // the anchors that correct it, in words; empty: none
  double without_anchors_s = 0;  // step time
};

/// @param settings  what a launch script asks of the stack beyond the plan
/// @param adjustment  of such runs; null: none
/// @throws ConfigError for unknown software and what sim::PreparedRun does not predict
SoftwareReport software_report(const program::Plan& plan, const sim::Cluster& cluster,
                               const std::string& software, double memory_reserve,
                               const sim::RunSettings& settings = {},
                               const sim::Adjustment* adjustment = nullptr);

std::string to_text(const SoftwareReport& report);
/// The terms of the step, those that know least first.
std::string explain_text(const SoftwareReport& report);
std::string to_json(const SoftwareReport& report);

}  // namespace meshplan::reports
