// meshplan check: does a training stack start this plan, does it fit, and what would be better?
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "options/inputs.hpp"
#include "options/plan_options.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "planner/check/check.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/plan_file/plan_settings.hpp"
#include "reports/check_report.hpp"
#include "sim/stacks/execution_profile.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::cli {
namespace {

struct Options {
  std::optional<std::string> file;
  std::optional<std::string> target;
  std::optional<std::string> cluster;
  std::optional<std::string> software;
  std::vector<std::string> set;
  std::optional<double> memory_reserve;
  bool all = false;
  bool json = false;
};

/// What a file asks to run: a plan, and what its stack was told besides.
struct Subject {
  program::Plan plan;
  std::string software;  // whose file it is: profile that prices it
  planner::Facts facts;
  std::vector<std::string> changes;  // of the file, by --set
  std::vector<std::string> assumptions;
  std::vector<std::string> ignored;
};

Subject subject_of(const Options& options) {
  const std::string& file = *options.file;
  Subject subject{.plan = {},
                  .software = std::string(sim::kOwnSoftware),
                  .facts = {},
                  .changes = {},
                  .assumptions = {},
                  .ignored = {}};
  std::string text = read_file(file);
  if (!options.set.empty()) {
    program::ChangedPlan changed = program::change_plan(text, file, options.set);
    text = std::move(changed.text);
    subject.changes = std::move(changed.changes);
  }
  subject.plan = program::read_plan(text, file);
  return subject;
}

/// @throws ConfigError if nobody wrote down the rules of the stack whose file it is
std::string target_for(const Subject& subject, const Options& options) {
  if (options.target) return *options.target;
  if (auto target = planner::target_of(subject.software)) return *std::move(target);
  throw ConfigError(fmt::format("{}: there are no rules of '{}'; name a target with --for",
                                *options.file, subject.software));
}

/// As many ranks of a cluster as the plan asks for, if it can have so many: else rules alone
/// answer.
void give_ranks(planner::CheckRequest& request, const sim::Cluster& cluster) {
  try {
    request.cluster = sim::with_ranks(cluster, request.plan.parallel.world_size());
  } catch (const ConfigError& error) {
    request.no_cluster = error.what();
  }
}

/// The degrees that --set changed take as many ranks as they ask for.
void give_cluster(planner::CheckRequest& request, const Options& options) {
  if (options.cluster) return give_ranks(request, load_cluster(*options.cluster));
  if (request.plan.cluster_json.empty()) return;
  const sim::Cluster cluster = cluster_of(request.plan, *options.file);
  if (options.set.empty())
    request.cluster = cluster;
  else
    give_ranks(request, cluster);
}

int run(const Options& options, const Terminal& terminal) {
  if (!options.file) throw ConfigError("what to check? usage: meshplan check PLAN [--for TARGET]");
  const Subject subject = subject_of(options);
  reports::CheckReport report{.request = {.plan = subject.plan,
                                          .beside = subject.facts,
                                          .target = target_for(subject, options),
                                          .software = options.software.value_or(""),
                                          .memory_reserve = memory_reserve(options.memory_reserve)},
                              .result = {},
                              .changes = subject.changes,
                              .assumptions = subject.assumptions,
                              .ignored = subject.ignored};
  planner::require_sizes(subject.plan);
  give_cluster(report.request, options);
  {
    const ElapsedTime elapsed("checking", terminal);
    report.result = planner::check_plan(report.request);
  }
  output("{}", options.json ? reports::to_json(report) : reports::to_text(report, options.all));
  if (!report.result.valid()) return kBadInput;
  return report.result.fits() ? kDone : kInfeasible;
}

}  // namespace

void add_check_command(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  line.add("check", "Say whether a training stack starts a plan, whether it fits, what helps")
      .positional("plan", options->file, "plan file")
      .choice("--for", options->target, planner::rule_targets(),
              "whose rules; default: those of the stack that the file is for")
      .option("--cluster", options->cluster,
              "preset or cluster file to predict memory on; default: the plan's own")
      .choice("--software", options->software, sim::execution_profile_names(),
              "predict memory and time as of this stack; default: the target's")
      .option("--set", options->set, "PATH=VALUE changes a value of the file; may be repeated")
      .option("--memory-reserve", options->memory_reserve, kMemoryReserveHelp)
      .flag("--all", options->all, "list the rules that the plan keeps, too")
      .flag("--json", options->json, "print the result for programs")
      .examples(
          "  meshplan check plan.json --for megatron-lm\n"
          "  meshplan check plan.json --for torchtitan --set parallel.tp=16 --all\n"
          "Exit code 2: a rule refuses the plan; 3: it does not fit. `meshplan rules` lists the "
          "rules.")
      .on_run([options, terminal = line.terminal()] { return run(*options, terminal); });
}

}  // namespace meshplan::cli
