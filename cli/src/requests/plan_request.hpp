// What `meshplan plan` and the Python package ask a search for, and what it answers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options/plan_options.hpp"
#include "options/search_options.hpp"
#include "options/whole_run/failure_options.hpp"
#include "output/terminal.hpp"
#include "planner/search/search.hpp"
#include "requests/question.hpp"

namespace meshplan::cli {

constexpr const char* kPlanSummary = "Find the fastest plan that fits, and say why";

struct PlanRequest {
  PlanOptions plan;
  SearchOptions search;
  FailureOptions failures;
  int top = 5;
  int threads = 0;
  std::optional<double> memory_reserve;
  std::optional<std::string> adjusted;  // or its JSON
};
/// The options that say what to plan: --model ... --tp ... --space --top --threads --memory-reserve
void add_plan_request(Command& command, PlanRequest& request);
/// --mtbf ...: for what ranks plans by goodput
void add_plan_failures(Command& command, PlanRequest& request);

/// What is to be searched. @throws ConfigError for a bad request
ResolvedRequest resolve(const PlanRequest& request);

struct PlanAnswer {
  planner::SearchRequest request;        // resolved
  std::vector<std::string> assumptions;  // what was filled in for it
  std::vector<std::string> changes;      // of its cluster, by --set
  planner::SearchOutcome outcome;        // with suggestions if nothing fits
  double search_s = 0;                   // seconds of the search

  bool feasible() const { return std::holds_alternative<planner::SearchResult>(outcome); }
  /// Whether the search was stopped.
  bool incomplete() const {
    return std::visit([](const auto& result) { return result.incomplete; }, outcome);
  }
};
/// @param parallel_for  on_threads(request.threads), or what a caller makes of it
/// @param stop  ends the search with what it has found; see planner::search
/// @throws ConfigError for a bad request, and for pins or a workload that no plan can obey
PlanAnswer answer(const PlanRequest& request, const planner::ParallelFor& parallel_for,
                  const Terminal& terminal, const planner::StopRequested& stop = {});

/// Answers reports::to_json of the outcome.
Question plan_question(const Threads& threads);

}  // namespace meshplan::cli
