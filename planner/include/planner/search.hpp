// Finds the fastest plan that obeys every rule and fits into memory, and says why. A pure function
// of its request: threads, clocks and files belong to the caller.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "planner/space.hpp"
#include "program/plan.hpp"
#include "sim/cluster.hpp"
#include "sim/estimator.hpp"

namespace meshplan::planner {

struct SearchRequest {
  models::ModelSpec model;
  sim::Cluster cluster;  // all of its ranks are used
  program::Workload workload;
  Constraints constraints;
  int top = 5;  // plans to return
};

/// Runs body(index, worker) once for every index below `count`, in any order; worker <
/// `num_workers` tells bodies that run at the same time apart.
struct ParallelFor {
  using Body = std::function<void(std::size_t index, int worker)>;
  int num_workers = 1;
  std::function<void(std::size_t count, const Body& body)> run;
};

/// In the calling thread, in order.
ParallelFor serial();

/// How plans are priced. `estimator()` is called once per worker; estimates must depend on the plan
/// alone. `simulate` plays a plan and returns its step time; it may be empty.
struct CostModel {
  using Estimate = std::function<sim::Estimate(const program::Plan&)>;
  std::function<Estimate()> estimator;
  std::function<double(const program::Plan&)> simulate;
  /// What playing a plan costs, and what all plans that are played may cost together.
  std::function<double(const program::Plan&)> simulation_cost;
  double simulation_budget = 0;
};

/// The estimator and the engine of `sim`. The budget counts operations played, over all stages.
CostModel cost_model(const sim::Cluster& cluster, double simulation_budget = 2e6);

/// Called now and then, from any worker, with plans priced so far and plans in all.
using Progress = std::function<void(std::size_t done, std::size_t total)>;

struct RankedPlan {
  program::Plan plan;  // with its prediction
  sim::Estimate estimate;
  std::optional<double> simulated_step_time_s;

  /// The simulated step time if there is one, else the estimate.
  double step_time_s() const { return simulated_step_time_s.value_or(estimate.step_time_s); }
};

/// Plans that were turned down for one reason, each counted once: broken rules first, then memory.
struct Rejection {
  std::string family;   // what they share: "tp=16", "pp=1"
  std::string rule;     // id of program::check, or "memory"
  std::string message;  // with values, rule and the nearest valid choice, or the nearest miss
  std::size_t plans = 0;
  bool operator==(const Rejection&) const = default;
};

/// What another value of one choice would have cost: the fastest plan that has it.
struct Alternative {
  std::string choice;                 // "tp=4"
  std::optional<program::Plan> plan;  // absent: no plan with it fits or obeys the rules
  double slower_by_s = 0;             // than the best plan; played times if it is ranked too
  std::string reason;                 // where the time goes, or what rejects it
};

struct SearchCounts {
  std::size_t total = 0;  // broke_a_rule + did_not_fit + ranked
  std::size_t broke_a_rule = 0;
  std::size_t did_not_fit = 0;
  std::size_t ranked = 0;
  std::size_t refined = 0;  // further variants of good plans that were priced: partial recompute,
                            // uneven stages
  bool operator==(const SearchCounts&) const = default;
};

struct SearchResult {
  SearchCounts counts;
  std::vector<RankedPlan> ranked;  // fastest first, at most `top`; the first one's prediction holds
                                   // the reasons for it
  std::vector<Rejection> rejections;
  std::vector<Alternative> alternatives;
};

/// No plan obeys the rules and fits.
struct InfeasibleResult {
  SearchCounts counts;
  std::vector<Rejection> rejections;
  /// Of the plans that obey the rules, the one that lacks the least memory; absent if none does.
  std::optional<RankedPlan> nearest_miss;
};

using SearchOutcome = std::variant<SearchResult, InfeasibleResult>;

/// Prices every candidate of the space, ranks those that fit by estimated step time (ties: less
/// memory, then the order of `enumerate`) and refines the best. The first of them, more than `top`
/// if the budget allows, are played with `costs.simulate` and ranked by what was played; if the
/// budget is below `top` plans, estimates rank them. Plans that differ in their schedule alone take
/// one place. The same request gives the same result whatever `parallel_for` does.
/// @throws ConfigError for pins that contradict each other or the number of ranks
SearchOutcome search(const SearchRequest& request, const CostModel& costs,
                     const ParallelFor& parallel_for, const Progress& progress = {});

/// The plan of a candidate: resolved model, cluster and workload, without prediction.
program::Plan make_plan(const SearchRequest& request, const Candidate& candidate);

}  // namespace meshplan::planner
