// meshplan trial: runs several plans in turns and lays predicted beside measured.
#include <filesystem>
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "ranks/plan_to_run.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "program/plan_file/plan_file.hpp"
#include "ranks/trial_runs.hpp"
#include "runtime/train/preflight.hpp"

namespace meshplan::cli {
namespace {

struct TrialOptions {
  std::vector<std::string> plans;
  TrialPolicy policy{.data = runtime::kDefaultText, .hosts = {}};
  std::optional<std::string> csv;
  std::optional<std::string> markdown;
  bool json = false;
  Terminal terminal;
};

std::vector<TrialPlan> load(const TrialOptions& options) {
  if (options.plans.empty()) throw ConfigError("which plans? usage: meshplan trial a.json b.json");
  std::vector<TrialPlan> plans;
  for (const std::string& file : options.plans) {
    plans.push_back({.name = std::filesystem::path(file).stem().string(),
                     .file = file,
                     .plan = plan_to_run(file)});
    if (!plans.back().plan.prediction)
      throw ConfigError(
          fmt::format("{}: prediction: missing; write the plan with `meshplan plan --out` or "
                      "`meshplan simulate --out`",
                      file));
  }
  return plans;
}

int run(const TrialOptions& options) {
  const TrialPolicy& policy = options.policy;
  if (policy.steps < 2)
    throw ConfigError(fmt::format("--steps {}: at least 2, the first is warm-up", policy.steps));
  if (policy.least_rounds < 1 || policy.most_rounds < policy.least_rounds)
    throw ConfigError(fmt::format("--rounds {} --most-rounds {}: at least 1, and most >= least",
                                  policy.least_rounds, policy.most_rounds));
  require_writable({options.csv, options.markdown});
  const std::vector<TrialPlan> plans = load(options);
  TemporaryFolder folder;
  const auto ran = run_in_turns(plans, policy, folder, options.terminal);
  if (const int* code = std::get_if<int>(&ran)) return *code;
  const auto& trial = std::get<reports::Trial>(ran);
  if (const std::string busy = reports::busy_cores(trial); !busy.empty())
    output(stderr, "meshplan: warning: {}; steps take longer than on a quiet machine\n", busy);
  if (options.csv) write_file(*options.csv, reports::to_csv(trial));
  if (options.markdown) write_file(*options.markdown, reports::to_markdown(trial));
  output("{}", options.json ? reports::to_json(trial) : reports::to_text(trial));
  return kDone;
}

}  // namespace

void add_trial_command(CommandLine& line) {
  const auto options = std::make_shared<TrialOptions>();
  options->terminal = line.terminal();
  Command command = line.add("trial", "Run several plans in turns; predicted beside measured");
  command.rest(options->plans, "plan files with predictions")
      .takes_file()
      .option("--data", options->policy.data, "text or token file")
      .is_path()
      .option("--steps", options->policy.steps, "of a plan in a round; the first is warm-up")
      .option("--rounds", options->policy.least_rounds, "at least")
      .option("--most-rounds", options->policy.most_rounds, "at most")
      .option("--stable", options->policy.stable,
              "stop when no plan's median moved more than this fraction in a round")
      .option("--csv", options->csv, "write a line per plan to this file")
      .is_path()
      .option("--markdown", options->markdown, "write the table for a report to this file")
      .is_path()
      .flag("--json", options->json, "print the result for programs");
  add_host_options(command, options->policy.hosts);
  command.examples("  meshplan trial plans/*.json").on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
