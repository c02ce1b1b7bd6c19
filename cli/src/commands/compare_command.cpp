// meshplan compare: predicted beside measured.
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "reports/comparison.hpp"

namespace meshplan::cli {
namespace {

struct Options {
  std::optional<std::string> predicted;
  std::optional<std::string> measured;
  int operations = 12;
  bool json = false;
};

int run(const Options& options) {
  if (!options.predicted || !options.measured)
    throw ConfigError("compare needs two traces: meshplan compare predicted.json measured.json");
  const program::Trace predicted =
      program::parse_trace(read_file(*options.predicted), *options.predicted);
  const program::Trace measured =
      program::parse_trace(read_file(*options.measured), *options.measured);
  const reports::Comparison comparison = reports::compare(predicted, measured);
  output("{}", options.json ? reports::to_json(comparison)
                            : reports::to_text(comparison, options.operations));
  return kDone;
}

}  // namespace

void add_compare_command(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Command command =
      line.add("compare", "Lay a predicted and a measured trace of a plan side by side");
  command.positional("predicted", options->predicted, "trace written by meshplan simulate")
      .is_path()
      .positional("measured", options->measured, "trace written by meshplan run")
      .is_path()
      .option("--operations", options->operations, "rows of the table of operations")
      .flag("--json", options->json, "print the result for programs")
      .examples(
          "  meshplan simulate plan.json --trace predicted.json\n"
          "  meshplan run plan.json --steps 20 --trace measured.json\n"
          "  meshplan compare predicted.json measured.json")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
