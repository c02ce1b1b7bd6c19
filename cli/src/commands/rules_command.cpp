// meshplan rules: the validity rules of training stacks, with where each stands in their source.
#include <memory>

#include "commands/commands.hpp"
#include "output/output.hpp"
#include "planner/rules/rules.hpp"
#include "process/exit_codes.hpp"
#include "reports/check_report.hpp"

namespace meshplan::cli {
namespace {

struct RulesOptions {
  std::optional<std::string> target;
  bool json = false;
};

int run(const RulesOptions& options) {
  const std::vector<std::string> targets =
      options.target ? std::vector{*options.target} : planner::rule_targets();
  if (options.json)
    output("{}", reports::rules_json(targets));
  else if (options.target)
    output("{}", reports::rules_text(planner::rules_for(*options.target)));
  else
    output("{}", reports::targets_text(targets));
  return kDone;
}

}  // namespace

void add_rules_command(CommandLine& line) {
  const auto options = std::make_shared<RulesOptions>();
  line.add("rules", "List the rules by which training stacks refuse a plan")
      .choice("--for", options->target, planner::rule_targets(),
              "of one stack, each with its source")
      .flag("--json", options->json, "print the rules for programs")
      .examples(
          "  meshplan rules\n"
          "  meshplan rules --for megatron-lm")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
