// meshplan plan: the fastest plan that fits, and why.
#include <chrono>
#include <cstdio>
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "options/plan_options.hpp"
#include "options/search_options.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/threads.hpp"
#include "program/plan_file/plan_file.hpp"
#include "reports/search_report.hpp"

namespace meshplan::cli {
namespace {

struct Options {
  PlanOptions plan;
  SearchOptions search;
  int top = 5;
  int threads = 0;
  std::optional<double> memory_reserve;
  std::optional<std::string> out;
  bool explain = false;
  bool json = false;
};

// Pins or a workload that no plan can obey are bad input; plans that are too large are an answer.
void require_valid_plan(const planner::InfeasibleResult& result) {
  if (result.nearest_miss) return;
  std::string message = "no plan obeys the rules:";
  for (const planner::Rejection& rejection : result.rejections)
    message += fmt::format("\n  {}: {}", rejection.family, rejection.message);
  throw ConfigError(message);
}

/// Only what works as it stands: without --out there is no file to name.
std::string next_steps(const std::optional<std::string>& file, const std::string& software) {
  if (!file) return "\nnext\n  repeat with --out plan.json to keep plan #1\n";
  if (software != sim::kOwnSoftware)
    return fmt::format("\nnext\n  meshplan simulate {} --software {}\n", *file, software);
  return fmt::format("\nnext\n  meshplan simulate {0} --chrome trace.json\n  meshplan run {0}\n",
                     *file);
}

int run(const Options& options, const Terminal& terminal) {
  require_writable({options.out});
  const ResolvedRequest resolved = resolve(options.plan);
  planner::SearchRequest request = resolved.request;
  apply(options.search, request);
  request.top = options.top;
  request.memory_reserve = memory_reserve(options.memory_reserve);

  const auto start = std::chrono::steady_clock::now();
  planner::SearchOutcome outcome = [&] {
    Progress progress("priced", terminal);
    return planner::search(
        request, planner::cost_model(request), on_threads(options.threads),
        [&](std::size_t done, std::size_t total) { progress.update(done, total); });
  }();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  auto* infeasible = std::get_if<planner::InfeasibleResult>(&outcome);
  if (infeasible != nullptr) {
    require_valid_plan(*infeasible);
    const ElapsedTime elapsed("looking for what would fit", terminal);
    infeasible->suggestions = planner::suggest(request, on_threads(options.threads));
  }
  if (options.json)
    output("{}", reports::to_json(outcome));
  else
    output("{}\n", reports::request_header(request, resolved.assumptions));
  if (infeasible != nullptr) {
    if (!options.json) output("{}", reports::to_text(*infeasible, seconds.count()));
    return kInfeasible;
  }
  const auto& result = std::get<planner::SearchResult>(outcome);
  const program::Plan& best = result.ranked.front().plan;
  if (options.out) write_file(*options.out, program::to_json(best));
  if (!options.json)
    output("{}{}{}", reports::to_text(result, seconds.count()),
           options.explain ? "\n" + reports::explain_text(result.ranked.front()) : "",
           next_steps(options.out, request.software));
  return kDone;
}

}  // namespace

void add_plan_command(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Command command = line.add("plan", "Find the fastest plan that fits, and say why");
  add_workload_options(command, options->plan);
  add_parallel_options(command, options->plan);
  command.group("The search and what it shows");
  add_search_options(command, options->search);
  command.option("--top", options->top, "plans to rank")
      .option("-j,--threads", options->threads,
              "threads of the search, at most one a core; 0 = all cores")
      .option("--memory-reserve", options->memory_reserve, kMemoryReserveHelp)
      .option("-o,--out", options->out, "write the best plan to this file")
      .flag("--explain", options->explain,
            "say how well each term of #1 is known, from what, and what to measure")
      .flag("--json", options->json, "print the result for programs")
      .examples(
          "  meshplan plan --model llama3-70b --cluster dgx-h100 --gpus 128 --global-batch 1024\n"
          "  meshplan plan --model config.json --cluster dgx-h100 --gpus 64 --global-batch 512 \\\n"
          "      --tp 8 --sp --out plan.json\n"
          "Flags of \"How to parallelize it\" are never overridden; what they leave open is\n"
          "searched. Exit code 3: no plan fits into memory; the nearest miss is shown.")
      .on_run([options, terminal = line.terminal()] { return run(*options, terminal); });
}

}  // namespace meshplan::cli
