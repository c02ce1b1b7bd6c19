// What can be said of a plan before it runs: does its stack start it, does it fit, and which single
// change would make it fit, or make it faster? docs/check/README.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/rules/rules.hpp"
#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/memory.hpp"
#include "sim/engine/step_prediction.hpp"

namespace meshplan::planner {

struct CheckRequest {
  program::Plan plan;  // its stack prices it
  Facts beside;        // settings of the stack that a file told and a plan has no word for
  std::string target = std::string(kOwnTarget);
  std::optional<sim::Cluster> cluster;  // absent, or of other ranks than the plan has: rules alone
  std::string no_cluster = "the plan holds no cluster, and none is named (--cluster)";
  double memory_reserve = sim::kMemoryReserve;  // part of a device that suggestions leave free
};

/// What a stage's fullest rank is predicted to hold.
struct StageNeed : sim::MemoryNeed {
  int stage = 0;
  sim::ShownMemory shown = {};  // of other software; else 0
};

/// A change of a plan and what it comes to; the global batch and what is trained stay as they are.
struct PricedChange {
  std::string words;                  // "micro_batch_size 4 -> 1"
  std::vector<std::string> settings;  // as `--set` takes them: "micro_batch_size=1"
  program::Plan plan;
  sim::StepPrediction step;
};

struct CheckResult {
  std::vector<Judgement> judgements;
  std::vector<StageNeed> stages;            // empty: not predicted
  std::optional<sim::StepPrediction> step;  // as estimated, like that of the changes
  std::string not_predicted;                // why, where it is not
  std::vector<std::string> other_releases;  // whose verdict on memory is another
  /// Of a plan that does not fit: changes with which it does, fastest first. Two at a time where
  /// none does alone.
  std::vector<PricedChange> fitting;
  /// Of a plan that fits: changes with which it still does, and is faster by more than kWorthIt;
  /// fastest first.
  std::vector<PricedChange> faster;

  /// No rule refuses it. What is undecidable may still.
  bool valid() const;
  bool fits() const;
  /// The stage with the least room; null if memory is not predicted.
  const StageNeed* fullest() const;
};

constexpr double kWorthIt = 0.02;  // part of the step time

/// @throws ConfigError for a plan whose sizes are beyond what any answer can be computed for
void require_sizes(const program::Plan& plan);

/// @throws ConfigError for an unknown target, and as require_sizes
CheckResult check_plan(const CheckRequest& request);

}  // namespace meshplan::planner
