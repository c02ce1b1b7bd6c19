// meshplan plan: the fastest plan that fits, and why.
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "core/quoting.hpp"
#include "options/foreign.hpp"
#include "options/plan_input.hpp"
#include "options/whole_run/training_run_options.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "planner/formats/formats.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/interrupt.hpp"
#include "process/threads.hpp"
#include "program/plan_file/plan_file.hpp"
#include "reports/explain/beside_best_report.hpp"
#include "reports/search_json.hpp"
#include "reports/search_report.hpp"
#include "reports/software_report.hpp"
#include "reports/sweep_report.hpp"
#include "requests/plan_request.hpp"

namespace meshplan::cli {
namespace {

struct PlanningOptions {
  PlanRequest request;
  TrainingRunOptions run;
  std::optional<std::string> out;
  std::optional<std::string> why_not;
  bool explain = false;
  bool json = false;
  bool schema = false;
  bool plan_schema = false;
};

/// How to launch it, where a format writes for the software.
std::string export_line(const std::string& file, const std::string& software) {
  const std::string name = sim::parse_software(software).name;
  for (const planner::Format& format : planner::formats())
    if (format.write != nullptr && format.software == name)
      return fmt::format("  meshplan export {} --to {}\n", shell_quoted(file), format.name);
  return "";
}

/// Only what works as it stands: without --out there is no file to name.
std::string next_steps(const std::optional<std::string>& file, const std::string& software) {
  if (!file) return "\nnext\n  repeat with --out plan.json to keep plan #1\n";
  if (software != sim::kOwnSoftware)
    return fmt::format("\nnext\n  meshplan simulate {}\n{}", shell_quoted(*file),
                       export_line(*file, software));
  return fmt::format("\nnext\n  meshplan simulate {0} --chrome trace.json\n  meshplan run {0}\n",
                     shell_quoted(*file));
}

/// What is said of #1 beside the search: other plans, each played beside it.
reports::BesideBest beside_best(const PlanningOptions& options, const PlanAnswer& found,
                                const planner::SearchResult& result) {
  const planner::SearchRequest& request = found.request;
  const planner::PricedOn on{request.cluster, request.memory_reserve, request.adjustment};
  const auto timed = [&](std::size_t i) {
    return planner::timed(result.ranked[i], request.cluster, request.adjustment.get());
  };
  reports::BesideBest beside{.best = timed(0)};
  beside.thumb = planner::rule_of_thumb_beside(beside.best, on);
  if (options.why_not) beside.why_not = planner::why_not(beside.best, *options.why_not, on);
  if (options.explain && result.ranked.size() > 1)
    beside.turning_points = planner::turning_points(beside.best, timed(1), on);
  return beside;
}

/// @throws ConfigError for changes that cannot be read, before the search
void require_answerable(const PlanningOptions& options) {
  if (!options.why_not) return;
  planner::change_choices({}, *options.why_not);
  if (options.json)
    throw ConfigError(
        "--why-not is no part of --json; write #1 with --out, and ask `meshplan why-not --json`");
}

int run(const PlanningOptions& options, const Terminal& terminal) {
  if (options.schema || options.plan_schema) {
    output("{}", options.schema ? reports::search_schema() : reports::plan_file_schema());
    return kDone;
  }
  require_writable({options.out});
  require_answerable(options);
  const PlanAnswer found = [&] {
    const InterruptRequest interrupt;
    return answer(options.request, on_threads(options.request.threads), terminal,
                  [&] { return interrupt.made(); });
  }();
  if (options.json)
    output("{}", reports::to_json(found.outcome));
  else
    output("{}{}\n", reports::request_header(found.request, found.assumptions),
           changes_text(found.changes));
  if (const auto* infeasible = std::get_if<planner::InfeasibleResult>(&found.outcome)) {
    if (!options.json) output("{}", reports::to_text(*infeasible, found.search_s));
    if (options.why_not) output("\nwhy not: there is no plan to change\n");
    return infeasible->incomplete ? kInterrupted : kInfeasible;
  }
  const auto& result = std::get<planner::SearchResult>(found.outcome);
  const program::Plan& best = result.ranked.front().plan;
  if (options.out) write_file(*options.out, program::to_json(best));
  const auto question = training_run_question(options.run, found.request.cluster);
  if (!options.json && question)
    output("whole run  {}\n{}\n",
           reports::training_run_text(planner::training_run(*question, result.ranked.front())),
           reports::assumed_price_text(*question));
  if (found.incomplete()) {
    if (!options.json)
      output("{}{}", reports::to_text(result, found.search_s),
             next_steps(options.out, found.request.stack.software));
    return kInterrupted;
  }
  if (options.json) return kDone;
  const reports::BesideBest beside = [&] {
    const ElapsedTime elapsed("playing other plans beside #1", terminal);
    return beside_best(options, found, result);
  }();
  output("{}{}{}{}{}", reports::to_text(result, found.search_s),
         reports::refused_text(stack_refusals({}, best)),
         reports::to_text(beside, found.request.memory_reserve),
         options.explain ? "\n" + reports::explain_text(result.ranked.front()) : "",
         next_steps(options.out, found.request.stack.software));
  return kDone;
}

}  // namespace

void add_plan_command(CommandLine& line) {
  const auto options = std::make_shared<PlanningOptions>();
  Command command = line.add("plan", kPlanSummary);
  add_plan_request(command, options->request);
  add_training_run_options(command, options->run);
  command.option("-o,--out", options->out, "write the best plan to this file")
      .is_path()
      .flag("--explain", options->explain,
            "say how well each term of #1 is known, from what, and what to measure; and what would "
            "make #2 as fast")
      .option("--why-not", options->why_not,
              "why not #1 with these changes, for example tp=8,pp=2 (`meshplan why-not`)")
      .flag("--json", options->json, "print the result for programs")
      .flag("--schema", options->schema,
            "print the JSON Schema of that; its $defs/plan is the one of plan files")
      .flag("--plan-schema", options->plan_schema, "print the JSON Schema of plan files alone");
  add_plan_failures(command, options->request);
  command
      .examples(
          "  meshplan plan --model llama3-70b --cluster dgx-h100 --gpus 128 --global-batch 1024\n"
          "  meshplan plan --model config.json --cluster dgx-h100 --gpus 64 --global-batch 512 \\\n"
          "      --tp 8 --sp --out plan.json\n"
          "  meshplan plan --model llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 "
          "\\\n"
          "      --mtbf 50000h\n"
          "Flags of \"How to parallelize it\" are never overridden; what they leave open is\n"
          "searched. Exit code 3: no plan fits into memory; the nearest miss is shown.\n"
          "Ctrl-C shows (and with --out keeps) the best plan so far, with exit code 130; a second\n"
          "one ends at once.")
      .on_run([options, terminal = line.terminal()] { return run(*options, terminal); });
}

}  // namespace meshplan::cli
