// meshplan explain: where a plan's time goes, what the cluster's figures do to it, and what other
// plans would cost.
#include "commands/commands.hpp"
#include "core/error.hpp"
#include "options/inputs.hpp"
#include "options/plan_input.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "planner/explain/explanation.hpp"
#include "process/exit_codes.hpp"
#include "reports/explain/explanation_report.hpp"

namespace meshplan::cli {
namespace {

struct ExplainOptions {
  std::optional<std::string> file;
  PlanOptions plan;
  std::optional<std::string> against;
  std::optional<double> memory_reserve;
  bool json = false;
};

int run(const ExplainOptions& options, const Terminal& terminal) {
  if (!options.file)
    throw ConfigError(
        "explain needs a plan's file: meshplan explain plan.json (`meshplan plan "
        "--out plan.json` writes one)");
  const PlanOnCluster input = plan_of_file(*options.file, options.plan);
  std::optional<program::Plan> rival;
  if (options.against)
    rival = plan_beside(input, *options.against, input_name(*options.file, "plan"));
  const planner::PricedOn on{input.cluster, memory_reserve(options.memory_reserve)};
  const planner::Explanation explanation = [&] {
    const ElapsedTime elapsed("simulating", terminal);
    return planner::explain(input.plan, on, rival);
  }();
  if (options.json)
    output("{}", reports::to_json(explanation));
  else
    output("{}{}", origin_text(input), reports::to_text(explanation, on));
  return explanation.priced.step.fits() ? kDone : kInfeasible;
}

}  // namespace

void add_explain_command(CommandLine& line) {
  const auto options = std::make_shared<ExplainOptions>();
  Command command = line.add("explain", "Say where a plan's time goes, and what would change it");
  command.positional("plan", options->file, "plan file").is_path().takes_json();
  add_cluster_options(command, options->plan);
  command
      .option("--against", options->against,
              "another plan's file: where does it lose, and what would make it as fast?")
      .is_path()
      .takes_json()
      .option("--memory-reserve", options->memory_reserve, kMemoryReserveHelp)
      .flag("--json", options->json, "print the result for programs")
      .examples(
          "  meshplan explain plan.json\n"
          "  meshplan explain plan.json --against other.json\n"
          "  meshplan explain plan.json --software megatron-core --set network=0.5\n"
          "Exit code 3: the plan does not fit into memory (the report is printed all the same).")
      .on_run([options, terminal = line.terminal()] { return run(*options, terminal); });
}

}  // namespace meshplan::cli
