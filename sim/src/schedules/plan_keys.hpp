// What the estimator remembers depends on fields of a plan. Which ones is said here alone, for
// every field, so that none is forgotten.
#pragma once

#include <string>
#include <vector>

#include "program/plan/plan.hpp"
#include "schedules/cache_key.hpp"

namespace meshplan::sim {

/// What plans of one search have in common. When it changes, everything is forgotten.
struct TrainingTask {
  models::ModelSpec model;
  program::Workload workload;
  std::vector<std::string> frozen;

  bool is_of(const program::Plan& plan) const;
};

/// What distinguishes plans of one task, by what is remembered of them.
struct PlanKeys {
  CacheKey layout;         // where groups lie on the cluster
  CacheKey schedule;       // who does what when, but for the number of micro-batches
  CacheKey programs;       // what a layer does, but for its recompute and how much of it there is
  CacheKey blocks;         // what it costs: of one size of micro-batch
  CacheKey expert_blocks;  // and what one with experts does besides
  CacheKey division;       // which layers a virtual stage has, and which of them recompute
  CacheKey buckets;        // which gradients are reduced at once, and how
  CacheKey reduction;      // what data parallelism makes of a stage

  /// Overwrites them; their memory is used again.
  void set(const program::Plan& plan);
};

}  // namespace meshplan::sim
