// meshplan export: a plan in the words of another stack, ready to launch.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "core/quoting.hpp"
#include "options/foreign.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/folders.hpp"
#include "program/certificate/certificate.hpp"
#include "program/plan_file/plan_file.hpp"

namespace meshplan::cli {
namespace {

struct ExportOptions {
  std::optional<std::string> file;
  std::optional<std::string> to;
  std::optional<std::string> launch;
  std::optional<std::string> out;
  std::optional<std::string> cluster;
  std::optional<std::string> certificate;
  ForeignOptions foreign;
  ForeignContext context;
  bool force = false;
};

std::vector<std::string> written_formats(bool with_jobs) {
  std::vector<std::string> names;
  for (const planner::Format& format : planner::formats())
    if (format.write != nullptr && (with_jobs || !format.software.empty()))
      names.emplace_back(format.name);
  return names;
}

std::string format_lines() {
  std::string lines = "Formats:\n";
  for (const planner::Format& format : planner::formats())
    if (format.write != nullptr) lines += fmt::format("  {:<16} {}\n", format.name, format.what);
  return lines;
}

/// @throws ConfigError if it is another plan's, or certifies that numbers differ
program::Certificate certificate_of(const std::string& file, const program::Plan& plan,
                                    const std::string& plan_file) {
  program::Certificate certificate = program::parse_certificate(read_file(file), file);
  const std::string hash = program::plan_hash(plan);
  if (certificate.plan_hash != hash)
    throw ConfigError(fmt::format(
        "{}: plan_hash: \"{}\" is another plan's; that of {} is \"{}\": meshplan "
        "certify {} --out {}",
        file, certificate.plan_hash, plan_file, hash, shell_quoted(plan_file), shell_quoted(file)));
  if (!certificate.agrees())
    throw ConfigError(fmt::format("{}: verdict: the plan's layout changes the numbers", file));
  return certificate;
}

planner::ExportRequest request_of(const ExportOptions& options) {
  const PlanInput input = read_plan(*options.file, options.foreign, options.context);
  for (const std::string& note : notes_of(input)) output(stderr, "{}\n", printable_line(note));
  planner::ExportRequest request{.plan = program::parse_plan(input.text, *options.file)};
  std::optional<sim::Cluster> cluster;
  if (options.cluster)
    cluster = sim::with_ranks(load_cluster(*options.cluster), request.plan.parallel.world_size());
  else if (!request.plan.cluster_json.empty())
    cluster = cluster_of(request.plan, *options.file);
  if (cluster) {
    request.devices_per_node = cluster->devices_per_node;
    request.device = cluster->device.name;
    request.cluster = std::move(cluster);
  }
  if (request.plan.prediction) request.reasons = request.plan.prediction->reasons;
  request.launch = options.launch.value_or("");
  if (options.certificate)
    request.certificate = certificate_of(*options.certificate, request.plan, *options.file);
  return request;
}

int run(const ExportOptions& options) {
  if (!options.file)
    throw ConfigError("a plan is missing; for example meshplan export plan.json --to megatron");
  if (!options.to)
    throw ConfigError(
        fmt::format("--to is missing; one of {}", fmt::join(written_formats(true), ", ")));
  const planner::Format& format = planner::format_of(*options.to);
  const std::string folder = options.out.value_or(std::string(format.name));
  require_free_folder(folder, options.force);
  const planner::ExportRequest request = request_of(options);
  std::vector<FolderFile> files;
  std::string predicted;
  try {
    planner::ExportedFolder exported = planner::exported_folder(format, request);
    predicted = std::move(exported.predicted);
    for (planner::ExportedFile& file : exported.files)
      files.push_back({std::move(file.name), std::move(file.text), file.executable});
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", *options.file, error.what()));
  }
  write_recorded_folder(folder, files, options.force);
  output("{}, in {}/\n", format.what, folder);
  for (const FolderFile& file : files)
    output("  {:<14} {:>6} bytes\n", file.name, file.text.size());
  if (!predicted.empty()) output("{}\n", predicted);
  return kDone;
}

}  // namespace

void add_export_command(CommandLine& line) {
  const auto options = std::make_shared<ExportOptions>();
  Command command = line.add("export", "Write a plan as another stack's launch script or job");
  command.positional("plan", options->file, "plan file, or another stack's configuration")
      .is_path()
      .takes_json()
      .option("--to", options->to,
              "what to write: " + fmt::format("{}", fmt::join(written_formats(true), ", ")))
      .suggests(written_formats(true))
      .option("--launch", options->launch,
              "of a job file: whose launch script it starts; default: megatron")
      .suggests(written_formats(false))
      .option("-o,--out", options->out, "folder to write; default: named as the format")
      .is_path()
      .option("--certificate", options->certificate,
              "what `meshplan certify` found for this plan, to go along")
      .is_path()
      .flag("--force", options->force,
            "write into a folder that holds files, and replace those of an earlier export")
      .option("-c,--cluster", options->cluster,
              "whose nodes run it; default: the plan's, else nodes of 8 GPUs")
      .suggests(sim::cluster_names())
      .takes_file()
      .takes_json();
  command.group("With another stack's configuration");
  add_foreign_options(command, options->foreign);
  add_foreign_context(command, options->context);
  command
      .examples(format_lines() +
                "Example:\n"
                "  meshplan export plan.json --to megatron --out run\n"
                "  meshplan export plan.json --to slurm --launch megatron --out job\n"
                "The whole folder appears at once; what the target cannot express is refused by "
                "name.")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
