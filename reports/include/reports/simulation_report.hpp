// What `meshplan simulate` shows: step time, where it goes on each stage, what each stage holds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/failures/saving.hpp"
#include "program/program.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/breakdown.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/extrapolation.hpp"
#include "sim/engine/link_traffic.hpp"
#include "sim/engine/memory.hpp"
#include "sim/engine/memory_timeline.hpp"
#include "sim/engine/simulated_step.hpp"

namespace meshplan::reports {

struct SimulationReport {
  program::Plan plan;
  sim::Cluster cluster;
  sim::SimulationResult simulation;
  std::vector<sim::StageBreakdown> stages;
  std::vector<sim::PredictionTerm> terms;  // of the stage that computes longest
  double memory_reserve = 0;               // part of a device that a plan should leave free
  double mfu = 0;
  double peak_flop_per_s = 0;  // of one rank in the plan's precision: what MFU divides by
  double tokens_per_s = 0;     // all ranks together
  std::optional<double> uncompressed_step_s;          // of a plan that compresses gradients
  std::vector<sim::MemoryTimeline> memory_timelines;  // if asked for
  std::vector<sim::LinkTraffic> traffic;              // if asked for
  std::vector<sim::Extrapolation> extrapolations;
  std::optional<planner::SavingPrediction> saving;  // if asked for
};

struct SimulationReportOptions {
  sim::SimulationOptions simulation;
  bool memory_timelines = false;
  bool communication = false;
  double memory_reserve = sim::kMemoryReserve;
  std::optional<planner::SavingIntervals> saving = {};
};

/// Lowers the plan and plays it on the cluster. Where spans or all ranks are asked for, all ranks
/// and micro-batches are played. @throws ConfigError as simulation_report
sim::PlayedPlan play(const program::Plan& plan, const sim::Cluster& cluster,
                     const sim::SimulationOptions& options);
/// What such a play says. @param programs, result  of the play
SimulationReport simulation_report(const std::vector<program::Program>& programs,
                                   sim::SimulationResult result, const program::Plan& plan,
                                   const sim::Cluster& cluster,
                                   const SimulationReportOptions& options);
/// Lowers the plan and plays it on the cluster. @throws ConfigError if the plan's ranks are not the
/// cluster's
SimulationReport simulation_report(const program::Plan& plan, const sim::Cluster& cluster,
                                   const SimulationReportOptions& options = {});

std::string to_text(const SimulationReport& report);
/// "fits: 76.0 GiB of 79.6 GiB on stage 0; keeps the reserve of 4 %"
std::string memory_verdict(const SimulationReport& report);
/// The terms of the step of the stage that computes longest, those that know least first.
std::string explain_text(const SimulationReport& report);
std::string to_json(const SimulationReport& report);

}  // namespace meshplan::reports
