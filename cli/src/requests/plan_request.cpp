#include "requests/plan_request.hpp"

#include <chrono>
#include <fmt/format.h>
#include <memory>

#include "core/error.hpp"
#include "output/progress.hpp"
#include "reports/search_json.hpp"
#include "sim/stacks/stack_memory.hpp"

namespace meshplan::cli {
namespace {

// Pins or a workload that no plan can obey are bad input; plans that are too large are an answer.
void require_valid_plan(const planner::InfeasibleResult& result) {
  if (result.nearest_miss || result.incomplete) return;
  std::string message = "no plan obeys the rules:";
  for (const planner::Rejection& rejection : result.rejections)
    message += fmt::format("\n  {}: {}", rejection.family, rejection.message);
  throw ConfigError(message);
}

}  // namespace

void add_plan_request(Command& command, PlanRequest& request) {
  add_workload_options(command, request.plan);
  add_parallel_options(command, request.plan);
  command.group("The search and what it shows");
  add_search_options(command, request.search);
  command.option("--top", request.top, "plans to rank")
      .option("-j,--threads", request.threads,
              "threads of the search, at most one a core; 0 = all cores")
      .option("--memory-reserve", request.memory_reserve, kMemoryReserveHelp)
      .option("--adjusted", request.adjusted, kAdjustedHelp)
      .is_path()
      .takes_json();
}

void add_plan_failures(Command& command, PlanRequest& request) {
  add_failure_options(command, request.failures,
                      fmt::format("{}; ranks plans by step time over goodput", kMtbfHelp));
}

ResolvedRequest resolve(const PlanRequest& request) {
  ResolvedRequest resolved = resolve(request.plan);
  resolved.request.failures = failures_of(request.failures);
  apply(request.search, resolved.request);
  resolved.request.top = request.top;
  resolved.request.memory_reserve =
      request.memory_reserve
          ? memory_reserve(request.memory_reserve)
          : sim::default_memory_reserve(resolved.request.stack, resolved.request.model);
  resolved.request.adjustment = load_adjustment(request.adjusted);
  if (const auto& adjustment = resolved.request.adjustment)
    require_adjustable(*adjustment,
                       {.model = resolved.request.model,
                        .workload = resolved.request.workload,
                        .stack = resolved.request.stack},
                       resolved.request.cluster, input_name(*request.adjusted, "adjustment"));
  return resolved;
}

PlanAnswer answer(const PlanRequest& request, const planner::ParallelFor& parallel_for,
                  const Terminal& terminal, const planner::StopRequested& stop) {
  ResolvedRequest resolved = resolve(request);
  PlanAnswer answer{.request = std::move(resolved.request),
                    .assumptions = std::move(resolved.assumptions),
                    .changes = std::move(resolved.changes),
                    .outcome = {}};

  const auto start = std::chrono::steady_clock::now();
  answer.outcome = [&] {
    Progress progress("priced", terminal);
    return planner::search_open_choices(
        answer.request, parallel_for,
        [&](std::size_t done, std::size_t total) { progress.update(done, total); }, stop);
  }();
  answer.search_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  if (auto* infeasible = std::get_if<planner::InfeasibleResult>(&answer.outcome)) {
    require_valid_plan(*infeasible);
    if (infeasible->incomplete) return answer;
    const ElapsedTime elapsed("looking for what would fit", terminal);
    infeasible->suggestions = planner::suggest(answer.request, parallel_for);
  }
  return answer;
}

Question plan_question(const Threads& threads) {
  const auto request = std::make_shared<PlanRequest>();
  return {
      .name = "plan",
      .summary = kPlanSummary,
      .declare =
          [request](Command& command) {
            add_plan_request(command, *request);
            add_plan_failures(command, *request);
          },
      .answer =
          [request, threads](const Command&) {
            return reports::to_json(answer(*request, threads(request->threads), kSilent).outcome);
          }};
}

}  // namespace meshplan::cli
