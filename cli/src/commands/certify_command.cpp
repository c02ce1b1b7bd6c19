// meshplan certify: is what a plan computes what one rank computes?
#include <algorithm>
#include <fmt/format.h>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "kernels/cpu_backend.hpp"
#include "ranks/plan_to_run.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/temporary_folder.hpp"
#include "program/certificate/certificate.hpp"
#include "program/certificate/twin.hpp"
#include "program/plan_file/plan_file.hpp"
#include "ranks/devices.hpp"
#include "ranks/ranks.hpp"
#include "reports/certificate_report.hpp"
#include "runtime/certify/certify.hpp"

namespace meshplan::cli {
namespace {

struct CertifyOptions {
  std::optional<std::string> file;
  bool own_precision = false;
  std::optional<std::string> out;
  bool json = false;
  std::optional<std::string> record;  // this process is a rank, and rank 0 writes there
  Terminal terminal;
  DeviceOptions device;
  HostOptions hosts;
};

program::Plan load(const CertifyOptions& options) {
  if (!options.file) throw ConfigError("which plan? usage: meshplan certify plan.json");
  return plan_to_run(*options.file);
}

program::TwinSet twins(const CertifyOptions& options, const program::Plan& plan) {
  program::TwinSet set = program::twins_of(
      plan, options.own_precision ? program::TwinPrecision::Own : program::TwinPrecision::Exact);
  if (set.twins.empty())
    throw ConfigError(fmt::format("{}: no plan of at most {} ranks has any of its techniques: {}",
                                  *options.file, program::kMostTwinRanks,
                                  fmt::join(set.uncovered, ", ")));
  return set;
}

int most_stages(const std::vector<program::Twin>& twins) {
  int most = 1;
  for (const program::Twin& twin : twins) most = std::max(most, twin.plan.parallel.pp);
  return most;
}

int work(CertifyOptions options, const std::vector<program::Twin>& twins, DeviceKind kind,
         runtime::Job& job) {
  prepare_process(options.device, job.layout().rank);
  options.device.hang_timeout_s = options.hosts.hang_timeout_s / 2;
  RankDevice device(options.device, kind, most_stages(twins), job);
  // GPUs are compared with kernels that are not theirs.
  const auto processor = kind == DeviceKind::Cuda ? kernels::make_cpu_backend(1) : nullptr;
  const runtime::TwinJob twin_job{.world = job.world(),
                                  .device = device.device(),
                                  .reference = processor ? *processor : device.device().backend(),
                                  .device_name = device.name(),
                                  .status = &job.board()};
  const bool leads = job.world().rank() == 0;
  std::optional<Progress> progress;
  if (leads) progress.emplace("running twins", options.terminal);
  const std::vector<program::TwinResult> results =
      runtime::certify(twins, twin_job, [&](std::size_t done) {
        job.board().progress();
        if (progress) progress->update(done, twins.size());
      });
  progress.reset();
  if (leads) write_file(*options.record, program::to_json(results));
  return kDone;
}

int largest_world(const std::vector<program::Twin>& twins) {
  int most = 1;
  for (const program::Twin& twin : twins) most = std::max(most, twin.plan.parallel.world_size());
  return most;
}

/// Starts the ranks and reads what rank 0 compared. @returns their exit code
int run_ranks(CertifyOptions& options, const Command& command,
              const std::vector<program::Twin>& twins, program::Certificate& certificate) {
  TemporaryFolder folder;
  options.record = folder.file("twins.json");
  const int ranks = largest_world(twins);
  output(stderr, "running {} twin{} on up to {} rank{}\n", twins.size(),
         twins.size() == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s");
  const int code = launch_self(ranks, options.hosts, command.arguments_of_ranks());
  if (code == kDone)
    certificate.twins = program::parse_twin_results(read_file(*options.record), *options.record);
  else
    certificate.failure = fmt::format("the ranks of a twin ended with exit code {}", code);
  return code;
}

int run(CertifyOptions& options, const Command& command) {
  const program::Plan plan = load(options);
  if (!options.device.device) options.device.device = "cpu";
  const DeviceKind device = choose_device(options.device);
  const program::TwinSet set = twins(options, plan);
  if (options.record)
    return as_rank(options.hosts,
                   [&](runtime::Job& job) { return work(options, set.twins, device, job); });
  if (is_rank())
    throw ConfigError("certify starts ranks of its own; call it without mpiexec or torchrun");
  require_writable({options.out});
  if (!starts_here(options.hosts))
    throw ConfigError("--hosts: certify reads on this machine what rank 0 writes; name it first");
  program::Certificate certificate{
      .version = program_version(),
      .plan_hash = program::plan_hash(plan),
      .plan_precision = std::string(program::precision_name(plan.workload)),
      .compared_in = std::string(program::precision_name(set.twins.front().plan.workload)),
      .uncovered = set.uncovered};
  output(stderr, "proving the programs of {} stage{}\n", plan.parallel.pp,
         plan.parallel.pp == 1 ? "" : "s");
  certificate.programs = program::prove_programs(plan);
  const int code = run_ranks(options, command, set.twins, certificate);
  if (code != kDone && code != kFailed) return code;
  const std::string json = program::to_json(certificate);
  if (options.out) write_file(*options.out, json);
  output("{}", options.json ? json : reports::to_text(certificate));
  return certificate.agrees() ? kDone : kFailed;
}

}  // namespace

void add_certify_command(CommandLine& line) {
  const auto options = std::make_shared<CertifyOptions>();
  options->terminal = line.terminal();
  Command command =
      line.add("certify", "Run a plan's layout at small sizes beside one rank, and compare");
  command.positional("plan", options->file, "plan file")
      .is_path()
      .flag("--own-precision", options->own_precision,
            "compare in the plan's precision, with its tolerance; default: in fp32, where only the "
            "order of sums differs")
      .option("-o,--out", options->out, "write the certificate to this file")
      .of_launcher()
      .flag("--json", options->json, "print the certificate instead of tables")
      .of_launcher()
      .option("--record", options->record,
              "(a rank of a twin: where rank 0 writes what it compared)")
      .is_path();
  add_device_options(command, options->device, "cpu");
  add_host_options(command, options->hosts);
  command
      .examples(
          "  meshplan certify plan.json\n"
          "  meshplan certify plan.json --out certificate.json\n"
          "  meshplan certify plan.json --device cuda --comm mpi     (beside one rank on a "
          "processor "
          "core)\n"
          "Exit code 0: every loss, gradient, update and router choice is that of one rank, and "
          "every\n"
          "message and copy is right to the bit; 1: something differs.\n"
          "What is compared, and what is not shown: docs/certificates/certificate.md")
      .on_run([options, command] { return run(*options, command); });
}

}  // namespace meshplan::cli
