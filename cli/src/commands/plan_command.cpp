// meshplan plan: the fastest plan that fits, and why.
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "options/training_run_options.hpp"
#include "output/output.hpp"
#include "planner/formats/formats.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/threads.hpp"
#include "program/plan_file/plan_file.hpp"
#include "reports/search_json.hpp"
#include "reports/search_report.hpp"
#include "reports/sweep_report.hpp"
#include "requests/plan_request.hpp"

namespace meshplan::cli {
namespace {

struct Options {
  PlanRequest request;
  TrainingRunOptions run;
  std::optional<std::string> out;
  bool explain = false;
  bool json = false;
  bool schema = false;
  bool plan_schema = false;
};

/// How to launch it, where a format writes for the software.
std::string export_line(const std::string& file, const std::string& software) {
  for (const planner::Format& format : planner::formats())
    if (format.write != nullptr && format.software == software)
      return fmt::format("  meshplan export {} --to {}\n", file, format.name);
  return "";
}

/// Only what works as it stands: without --out there is no file to name.
std::string next_steps(const std::optional<std::string>& file, const std::string& software) {
  if (!file) return "\nnext\n  repeat with --out plan.json to keep plan #1\n";
  if (software != sim::kOwnSoftware)
    return fmt::format("\nnext\n  meshplan simulate {0} --software {1}\n{2}", *file, software,
                       export_line(*file, software));
  return fmt::format("\nnext\n  meshplan simulate {0} --chrome trace.json\n  meshplan run {0}\n",
                     *file);
}

int run(const Options& options, const Terminal& terminal) {
  if (options.schema || options.plan_schema) {
    output("{}", options.schema ? reports::search_schema() : reports::plan_file_schema());
    return kDone;
  }
  require_writable({options.out});
  const PlanAnswer found = answer(options.request, on_threads(options.request.threads), terminal);
  if (options.json)
    output("{}", reports::to_json(found.outcome));
  else
    output("{}\n", reports::request_header(found.request, found.assumptions));
  if (const auto* infeasible = std::get_if<planner::InfeasibleResult>(&found.outcome)) {
    if (!options.json) output("{}", reports::to_text(*infeasible, found.search_s));
    return kInfeasible;
  }
  const auto& result = std::get<planner::SearchResult>(found.outcome);
  const program::Plan& best = result.ranked.front().plan;
  if (options.out) write_file(*options.out, program::to_json(best));
  const auto question = training_run_question(options.run, found.request.cluster);
  if (!options.json && question)
    output("whole run  {}\n\n",
           reports::training_run_text(planner::training_run(
               *question, result.ranked.front().step_time_s(),
               static_cast<double>(best.workload.global_batch_size * best.workload.seq_len),
               best.parallel.world_size())));
  if (!options.json)
    output("{}{}{}", reports::to_text(result, found.search_s),
           options.explain ? "\n" + reports::explain_text(result.ranked.front()) : "",
           next_steps(options.out, found.request.software));
  return kDone;
}

}  // namespace

void add_plan_command(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Command command = line.add("plan", kPlanSummary);
  add_plan_request(command, options->request);
  add_training_run_options(command, options->run);
  command.option("-o,--out", options->out, "write the best plan to this file")
      .is_path()
      .flag("--explain", options->explain,
            "say how well each term of #1 is known, from what, and what to measure")
      .flag("--json", options->json, "print the result for programs")
      .flag("--schema", options->schema,
            "print the JSON Schema of that; its $defs/plan is the one of plan files")
      .flag("--plan-schema", options->plan_schema, "print the JSON Schema of plan files alone")
      .examples(
          "  meshplan plan --model llama3-70b --cluster dgx-h100 --gpus 128 --global-batch 1024\n"
          "  meshplan plan --model config.json --cluster dgx-h100 --gpus 64 --global-batch 512 \\\n"
          "      --tp 8 --sp --out plan.json\n"
          "Flags of \"How to parallelize it\" are never overridden; what they leave open is\n"
          "searched. Exit code 3: no plan fits into memory; the nearest miss is shown.")
      .on_run([options, terminal = line.terminal()] { return run(*options, terminal); });
}

}  // namespace meshplan::cli
