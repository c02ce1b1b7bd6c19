// meshplan check: does a training stack start this plan, does it fit, and what would be better?
#include "commands/commands.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "requests/check_request.hpp"

namespace meshplan::cli {
namespace {

struct CheckOptions {
  CheckRequest request;
  bool all = false;
  bool json = false;
};

int run(const CheckOptions& options, const Terminal& terminal) {
  const reports::CheckReport report = answer(options.request, terminal);
  output("{}", options.json ? reports::to_json(report) : reports::to_text(report, options.all));
  if (!report.result.valid()) return kBadInput;
  return report.result.fits() ? kDone : kInfeasible;
}

}  // namespace

void add_check_command(CommandLine& line) {
  const auto options = std::make_shared<CheckOptions>();
  Command command = line.add("check", kCheckSummary);
  add_check_request(command, options->request);
  command.flag("--all", options->all, "list the rules that the plan keeps, too")
      .flag("--json", options->json, "print the result for programs")
      .examples(
          "  meshplan check plan.json --for megatron-lm\n"
          "  meshplan check run.sh --cluster dgx-h100\n"
          "  meshplan check plan.json --for torchtitan --set parallel.tp=16 --all\n"
          "Exit code 2: a rule refuses the plan; 3: it does not fit. `meshplan rules` lists the "
          "rules.")
      .on_run([options, terminal = line.terminal()] { return run(*options, terminal); });
}

}  // namespace meshplan::cli
