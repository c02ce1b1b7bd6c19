// meshplan diff: two plans side by side.
#include "commands/commands.hpp"
#include "core/error.hpp"
#include "options/plan_input.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "planner/explain/comparison.hpp"
#include "process/exit_codes.hpp"
#include "reports/explain/diff_report.hpp"

namespace meshplan::cli {
namespace {

struct DiffOptions {
  std::optional<std::string> a;
  std::optional<std::string> b;
  PlanOptions plan;
  bool json = false;
};

int run(const DiffOptions& options, const Terminal& terminal) {
  if (!options.a || !options.b)
    throw ConfigError("diff needs two plans' files: meshplan diff a.json b.json");
  PlanOnCluster a = plan_of_file(*options.a, options.plan);
  PlanOnCluster b = plan_of_file(*options.b, options.plan);
  const planner::ComparedPlans compared = [&] {
    const ElapsedTime elapsed("simulating", terminal);
    return planner::compare(planner::price(a.plan, a.cluster), planner::price(b.plan, b.cluster),
                            a.cluster == b.cluster && a.plan.stack == b.plan.stack);
  }();
  if (options.json)
    output("{}", reports::to_json(compared));
  else
    output("{}{}", origin_text(a), reports::to_text(compared));
  return kDone;
}

}  // namespace

void add_diff_command(CommandLine& line) {
  const auto options = std::make_shared<DiffOptions>();
  Command command = line.add("diff", "Lay two plans side by side: settings, time, memory");
  command.positional("a", options->a, "plan file")
      .is_path()
      .takes_json()
      .positional("b", options->b, "plan file")
      .is_path()
      .takes_json();
  add_cluster_options(command, options->plan);
  command.flag("--json", options->json, "print the result for programs")
      .examples(
          "  meshplan diff plan.json other.json\n"
          "  meshplan diff plan.json other.json --software megatron-core\n"
          "--cluster and --set hold for both plans.")
      .on_run([options, terminal = line.terminal()] { return run(*options, terminal); });
}

}  // namespace meshplan::cli
