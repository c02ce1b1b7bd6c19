// What `meshplan simulate --estimate` shows: a plan as the search estimates it, without playing it.
#pragma once

#include <optional>
#include <string>

#include "planner/failures/saving.hpp"
#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/step_prediction.hpp"

namespace meshplan::reports {

struct EstimateReport {
  program::Plan plan;
  sim::Cluster cluster;
  sim::StepPrediction step;
  double memory_reserve = 0;  // part of a device that a plan should leave free
  double tokens_per_s = 0;    // all ranks together
  double mean_bubble_s = 0;   // what a stage waits for others, as the mean over the stages
  std::optional<planner::SavingPrediction> saving;  // if asked for
};

/// @param plan  of our own software. @throws ConfigError if its ranks are not the cluster's
EstimateReport estimate_report(const program::Plan& plan, const sim::Cluster& cluster,
                               double memory_reserve,
                               const std::optional<planner::SavingIntervals>& saving = {});

std::string to_text(const EstimateReport& report);
std::string to_json(const EstimateReport& report);

}  // namespace meshplan::reports
