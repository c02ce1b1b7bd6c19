// Finds the fastest plan that obeys every rule and fits into memory, and says why. A pure function
// of its request: threads, clocks and files belong to the caller.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "planner/failures/failure_model.hpp"
#include "planner/search/space.hpp"
#include "program/plan/plan.hpp"
#include "sim/anchors/adjustment.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/memory.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/engine/step_prediction.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::planner {

/// A search plays its best plans, each on all ranks.
constexpr int kMostSearchedRanks = 1 << 17;

/// Times as long as the first: what is estimated to take longer is not played.
constexpr double kFarSlower = 1.25;

struct SearchRequest {
  models::ModelSpec model;
  sim::Cluster cluster;                                         // all of its ranks are used
  program::Stack stack;                                         // that runs the plan
  std::shared_ptr<const sim::Adjustment> adjustment = nullptr;  // of its runs by measured ones
  program::Workload workload;
  Constraints constraints;
  Space space = space_preset("default");
  int top = 5;                                  // plans to return
  double memory_reserve = sim::kMemoryReserve;  // part of each device that a plan leaves free
  bool alternatives = true;  // false: only the best are asked for; a nearest miss is estimated
  std::optional<FailureAssumptions> failures = {};  // plans are then compared by step over goodput
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
/// alone, but for plans that are not wanted, of which a bound is enough. `simulate` lowers and
/// plays a plan; of one that turns out to take more events than it is given, it may return nothing.
/// It may be empty: then estimates are shown.
struct CostModel {
  using Estimate = std::function<sim::StepPrediction(const program::Plan&, const sim::Wanted&)>;
  std::function<Estimate()> estimator;
  std::function<std::optional<sim::SimulatedStep>(const program::Plan&, std::int64_t most_events)>
      simulate;
};

/// The estimator of `sim`; and its engine, for software whose operations are known one by one.
/// @throws ConfigError for unknown software
CostModel cost_model(const SearchRequest& request);

/// Called now and then, from any worker, with plans priced so far and plans in all.
using Progress = std::function<void(std::size_t done, std::size_t total)>;

/// Asked often, from any worker; once true, always. A search then ends with the best of what it has
/// looked at.
using StopRequested = std::function<bool()>;

struct RankedPlan {
  program::Plan plan;  // with its prediction
  sim::StepPrediction estimate;
  std::optional<sim::SimulatedStep> simulated;
  bool ties = false;  // with the fastest: their difference is within what can be told apart
  std::optional<Goodput> goodput = {};  // if failures are asked for

  /// What is shown: simulated, if the cost model can.
  const sim::StepPrediction& step() const { return simulated ? simulated->step : estimate; }
  double step_time_s() const { return step().step_time_s; }
  /// What plans are compared by: the step time, over the goodput if failures are asked for.
  double effective_s() const {
    return goodput ? goodput->effective_s(step_time_s()) : step_time_s();
  }
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
  std::string choice;              // "tp=4"
  std::optional<RankedPlan> plan;  // absent: none fits, obeys the rules, or comes near the first
  double slower_by_s = 0;          // than the first plan, over goodput if failures are asked for
  std::string reason;              // where the time goes, or what rejects it
  /// As long as the first, as estimated: of one that was not played.
  std::optional<double> estimated_times = {};
};

struct SearchCounts {
  std::size_t total = 0;  // of the space: the sum of the following
  std::size_t broke_a_rule = 0;
  std::size_t did_not_fit = 0;
  std::size_t ranked = 0;
  std::size_t bounded = 0;  // that a bound tells to be slower, without a price
  std::size_t refined = 0;  // beyond the space: recompute layer by layer, uneven stages
  SearchCounts& operator+=(const SearchCounts& other);
  bool operator==(const SearchCounts&) const = default;
};

/// An order of a mixed cluster's nodes, and the fastest plan's step time on it; none: none fits.
struct NodeOrder {
  std::string cluster;  // "dgx-a100:4+dgx-h100:4"
  std::optional<double> step_time_s;
};

/// A way in which another stack's experts exchange rows, and the fastest plan's step time with it;
/// none: none fits.
struct DispatchChoice {
  program::ExpertDispatch dispatch = program::ExpertDispatch::AllToAll;
  std::optional<double> step_time_s;
};

struct SearchResult {
  SearchCounts counts;
  std::vector<DispatchChoice> dispatches = {};  // all that were searched; empty where there is one
  std::vector<NodeOrder> node_orders = {};      // all that were searched; empty where there is one
  /// At most `top`. The first is the simplest of those that no plan beats by more than the
  /// prediction can tell; then come those that tie with it, simplest first, then the others,
  /// fastest first. The first one's prediction holds the reasons for it.
  std::vector<RankedPlan> ranked;
  std::vector<Rejection> rejections;
  std::vector<Alternative> alternatives;
  bool incomplete = false;  // stopped: counts and plans are of a part of the space
};

/// What was asked for, changed, and what fits then.
struct Suggestion {
  std::string change;  // "--offload-optimizer", "without --zero 0", "16 GPUs"
  RankedPlan plan;
};

/// No plan obeys the rules and fits.
struct InfeasibleResult {
  SearchCounts counts;
  std::vector<Rejection> rejections;
  double memory_reserve = 0;  // part of each device that was to stay free
  /// The plan that lacks the least memory among those that obey the rules; absent if none does.
  std::optional<RankedPlan> nearest_miss;
  std::vector<Suggestion> suggestions;
  bool incomplete = false;  // stopped: what was not looked at may fit
};

using SearchOutcome = std::variant<SearchResult, InfeasibleResult>;

/// The fastest plan's step time; none if none fits.
std::optional<double> step_time_s(const SearchOutcome& outcome);
/// The first plan's RankedPlan::effective_s; none if none fits.
std::optional<double> effective_s(const SearchOutcome& outcome);
bool is_incomplete(const SearchOutcome& outcome);

/// Prices every candidate of the space, but for those of which a smaller one lacks memory, ranks
/// those that fit beside the reserve by estimated step time (ties: less memory, then the order of
/// `enumerate`) and refines the best. The first of them, and the best of every other value of every
/// choice, are played with `costs.simulate`, which decides on their order and on what fits; where
/// that would take more than some seconds of processor time, the slowest of them are left out or
/// keep their estimates. Plans that differ in their schedule alone take one place. The same request
/// gives the same result whatever `parallel_for` does. If failures are asked for, step times are
/// compared over the plans' goodput everywhere.
///
/// Once `stop` says so no plan is priced any more, and of those that were the fastest that fits
/// when it is played is the answer, beside what had been played before.
/// @throws ConfigError for pins that contradict each other or the number of ranks, and as
/// FailureModel
SearchOutcome search(const SearchRequest& request, const CostModel& costs,
                     const ParallelFor& parallel_for, const Progress& progress = {},
                     const StopRequested& stop = {});

/// Which stages the devices of a mixed cluster hold follows from the order of its nodes: searches
/// every order of their types, of up to three. Other clusters, and those whose plans are pinned to
/// one stage, are searched as they are. @param request  gets the cluster in the fastest order
/// @param stop  as of search(); orders that come later are left out
SearchOutcome search_node_orders(SearchRequest& request, const ParallelFor& parallel_for,
                                 const Progress& progress = {}, const StopRequested& stop = {});

/// What a request leaves open beside its plans: search_node_orders() with the stack's own exchange
/// of experts, and with the fused one that it can have. @param request  gets the faster one's
/// setting, if that is the fused one, and the order of its nodes
SearchOutcome search_open_choices(SearchRequest& request, const ParallelFor& parallel_for,
                                  const Progress& progress = {}, const StopRequested& stop = {});

/// Changes of a request that has no plan, each of which has one: an optimizer state in host memory,
/// a pin less, the fewest ranks (twice, four times, ... as many). What takes long to search is left
/// out.
std::vector<Suggestion> suggest(const SearchRequest& request, const ParallelFor& parallel_for);

/// The plan of a candidate: resolved model, cluster and workload, without prediction.
program::Plan make_plan(const SearchRequest& request, const Candidate& candidate);

}  // namespace meshplan::planner
