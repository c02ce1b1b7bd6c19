// meshplan strategies: the layouts of the textbooks for one model, side by side.
#include <fmt/format.h>

#include "commands/scaling/scaling_commands.hpp"
#include "core/error.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "process/threads.hpp"
#include "reports/scaling/strategies_report.hpp"
#include "reports/search_report.hpp"
#include "requests/plan_request.hpp"

namespace meshplan::cli {
namespace {

struct StrategiesOptions {
  PlanRequest request;
  bool json = false;
  bool schema = false;
};

/// What strategies fix must not be fixed by the user as well.
void refuse_pins(const planner::Constraints& pins) {
  for (const auto& [given, flag] : {std::pair{pins.tp.has_value(), "--tp"},
                                    {pins.pp.has_value(), "--pp"},
                                    {pins.dp.has_value(), "--dp"},
                                    {pins.cp.has_value(), "--cp"},
                                    {pins.ep.has_value(), "--ep"},
                                    {pins.sp.has_value(), "--sp"},
                                    {pins.zero_stage.has_value(), "--zero"}})
    if (given)
      throw ConfigError(fmt::format(
          "{}: strategies fixes this itself, differently for each; leave it out, or use `meshplan "
          "plan`, which takes it",
          flag));
}

int run(const StrategiesOptions& options, const Terminal& terminal) {
  if (options.schema) {
    output("{}", reports::strategies_schema());
    return kDone;
  }
  const ResolvedRequest resolved = resolve(options.request);
  refuse_pins(resolved.request.constraints);
  const auto say = [&](const std::string& strategy) {
    if (!terminal.silent) output(stderr, "strategies: {}\n", strategy);
  };
  if (!options.json)
    output("{}\n", reports::request_header(resolved.request, resolved.assumptions));
  const reports::StrategiesReport report{
      resolved.request,
      planner::compare_strategies(resolved.request, on_threads(options.request.threads), say)};
  output("{}", options.json ? reports::to_json(report) : reports::to_text(report));
  return planner::fastest_of(report.rows) ? kDone : kInfeasible;
}

}  // namespace

void add_strategies_command(CommandLine& line) {
  const auto options = std::make_shared<StrategiesOptions>();
  Command command = line.add(
      "strategies", "Compare the textbooks' layouts (dp, ZeRO, tp, pp, 3-D, ...) for one model");
  add_plan_request(command, options->request);
  command.group("Output")
      .flag("--json", options->json, "print the result for programs")
      .flag("--schema", options->schema, "print the JSON Schema of that")
      .examples(
          "  meshplan strategies --model llama3-8b --cluster dgx-h100 --gpus 64 --global-batch "
          "512\n"
          "  meshplan strategies --model mixtral-8x7b --cluster dgx-h100 --gpus 32 \\\n"
          "      --global-batch 256 --micro-batch 1\n"
          "Each strategy is as good as it can be: micro-batch, recompute, schedule and the "
          "degrees\n"
          "that it leaves open are searched, unless they are pinned.\n"
          "Exit code 3: none of them fits.")
      .on_run([options, terminal = line.terminal()] { return run(*options, terminal); });
}

}  // namespace meshplan::cli
