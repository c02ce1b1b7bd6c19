// meshplan why-not: what keeps a changed plan from being the better one.
#include "commands/commands.hpp"
#include "core/error.hpp"
#include "options/plan_input.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "planner/explain/why_not.hpp"
#include "process/exit_codes.hpp"
#include "reports/explain/why_not_report.hpp"

namespace meshplan::cli {
namespace {

struct WhyNotOptions {
  std::optional<std::string> file;
  std::optional<std::string> changes;
  PlanOptions plan;
  std::optional<double> memory_reserve;
  bool json = false;
};

int run(const WhyNotOptions& options, const Terminal& terminal) {
  if (!options.file || !options.changes)
    throw ConfigError(
        "why-not needs a plan's file and changes: meshplan why-not plan.json \"tp=8,pp=2\"");
  const PlanOnCluster input = plan_of_file(*options.file, options.plan);
  planner::change_choices(input.plan, *options.changes);  // can it be read?
  const planner::PricedOn on{input.cluster, memory_reserve(options.memory_reserve)};
  const auto [given, answer] = [&] {
    const ElapsedTime elapsed("simulating", terminal);
    const planner::PricedPlan priced = planner::price(input.plan, input.cluster);
    return std::pair(priced, planner::why_not(priced, *options.changes, on));
  }();
  if (options.json)
    output("{}", reports::to_json(answer, given));
  else
    output("{}{}", origin_text(input), reports::to_text(answer, given, on.memory_reserve));
  return kDone;
}

}  // namespace

void add_why_not_command(CommandLine& line) {
  const auto options = std::make_shared<WhyNotOptions>();
  Command command = line.add("why-not", "Say what keeps a plan with other choices back");
  command.positional("plan", options->file, "plan file")
      .is_path()
      .takes_json()
      .positional("changes", options->changes, "choices with commas between them: tp=8,pp=2");
  add_cluster_options(command, options->plan);
  command.option("--memory-reserve", options->memory_reserve, kMemoryReserveHelp)
      .flag("--json", options->json, "print the result for programs")
      .examples(
          "  meshplan why-not plan.json \"tp=8,pp=2\"\n"
          "  meshplan why-not plan.json \"schedule=interleaved,vpp=4,recompute=full\"\n"
          "dp follows from the other degrees, so that all ranks stay in use.")
      .on_run([options, terminal = line.terminal()] { return run(*options, terminal); });
}

}  // namespace meshplan::cli
