// meshplan import: another stack's configuration as a plan.
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "core/quoting.hpp"
#include "options/foreign.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "program/plan_file/plan_file.hpp"
#include "reports/import_report.hpp"

namespace meshplan::cli {
namespace {

struct ImportOptions {
  std::optional<std::string> file;
  std::optional<std::string> cluster;
  std::optional<std::string> out;
  ForeignOptions foreign;
  ForeignContext context;
  bool json = false;
};

/// The plan as its file will hold it: with the cluster that was named.
program::Plan with_cluster(program::Plan plan, const std::optional<std::string>& name) {
  if (!name) return plan;
  const sim::Cluster cluster = sim::with_ranks(load_cluster(*name), plan.parallel.world_size());
  plan.cluster_name = cluster.name;
  plan.cluster_json = sim::to_json(cluster);
  plan.cluster_hash.clear();
  return program::parse_plan(program::to_json(plan), "the imported plan");
}

int run(const ImportOptions& options) {
  if (!options.file)
    throw ConfigError("a file is missing; for example meshplan import run.sh --out plan.json");
  require_writable({options.out});
  const PlanInput input = read_plan(*options.file, options.foreign, options.context);
  if (input.format.empty()) throw ConfigError(fmt::format("{}: is a plan already", *options.file));
  const program::Plan plan =
      with_cluster(program::parse_plan(input.text, *options.file), options.cluster);
  if (options.out) write_file(*options.out, program::to_json(plan));
  const reports::ImportReport report{.plan = plan,
                                     .file = *options.file,
                                     .format = input.format,
                                     .assumptions = input.assumptions,
                                     .ignored = input.ignored};
  output("{}", options.json ? reports::to_json(report) : reports::to_text(report));
  if (options.json) return kDone;
  if (options.out)
    output("\nnext\n  meshplan simulate {}{}\n", shell_quoted(*options.out),
           options.cluster ? "" : " --cluster dgx-h100");
  else
    output("\nnext\n  repeat with --out plan.json to keep the plan\n");
  return kDone;
}

}  // namespace

void add_import_command(CommandLine& line) {
  const auto options = std::make_shared<ImportOptions>();
  Command command = line.add("import", "Read another stack's configuration as a plan");
  command.positional("file", options->file, "its launch script or configuration").is_path();
  add_foreign_options(command, options->foreign);
  add_foreign_context(command, options->context);
  command.option("-c,--cluster", options->cluster, "cluster that the plan's file is to hold")
      .suggests(sim::cluster_names())
      .takes_file()
      .takes_json()
      .option("-o,--out", options->out, "write the plan to this file")
      .is_path()
      .flag("--json", options->json, "print the result for programs")
      .examples(
          "  meshplan import run.sh --cluster dgx-h100 --out plan.json\n"
          "  meshplan import --from megatron train.sh --env NNODES=16 --out plan.json\n"
          "Scripts are read, never run: what depends on a command or on a variable that is not "
          "set\n"
          "is named, and given with --env.")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
