// meshplan run: executes a plan on ranks of its own.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <utility>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/units.hpp"
#include "devices.hpp"
#include "exit_codes.hpp"
#include "files.hpp"
#include "inputs.hpp"
#include "program/lower.hpp"
#include "ranks.hpp"
#include "reports/run_report.hpp"
#include "runtime/checkpoint_writer.hpp"
#include "runtime/hugging_face_weights.hpp"
#include "runtime/preflight.hpp"
#include "runtime/run_checkpoints.hpp"
#include "runtime/stop_signal.hpp"
#include "runtime/train.hpp"

namespace meshplan::cli {
namespace {

struct Options {
  std::optional<std::string> file;
  runtime::TrainOptions train;
  std::optional<std::int64_t> seed;
  std::optional<std::string> checkpoint_dir;
  std::optional<std::string> resume;
  std::optional<std::string> init_from;
  std::optional<int> traced_steps;
  std::optional<std::string> trace;
  std::optional<std::string> chrome;
  DeviceOptions device;
  bool any_placement = false;
  bool json = false;
  bool quiet = false;
  HostOptions hosts;
};

program::Plan load_plan(const Options& options) {
  if (!options.file) throw ConfigError("which plan? usage: meshplan run plan.json --steps 20");
  return program::parse_plan(read_file(*options.file), *options.file);
}

int ranks_on_fullest_host(const HostOptions& options, int ranks) {
  int most = 0;
  int left = ranks;
  for (const runtime::HostSlots& host : parse_hosts(options)) {
    most = std::max(most, std::min(left, host.slots));
    left -= std::min(left, host.slots);
  }
  return most == 0 ? ranks : most;
}

int launch(const Options& options, const program::Plan& plan, DeviceKind device) {
  runtime::check_data(plan, options.train.data_path, options.train.evaluate_every > 0);
  runtime::check_start(plan, options.train);
  // Rank 0 writes; on another host it looks at its own folders, before it trains.
  if (starts_here(options.hosts)) require_writable({options.trace, options.chrome});
  const int ranks = plan.parallel.world_size();
  const runtime::CheckpointOptions& checkpoints = options.train.checkpoints;
  const bool saves = !checkpoints.folder.empty();
  if (device == DeviceKind::Cpu)
    runtime::check_memory(plan, ranks_on_fullest_host(options.hosts, ranks), saves);
  std::vector<std::string> arguments = {"run",
                                        std::filesystem::absolute(*options.file).string(),
                                        "--steps",
                                        std::to_string(options.train.num_steps),
                                        "--data",
                                        std::filesystem::absolute(options.train.data_path).string(),
                                        "--seed",
                                        std::to_string(options.train.seed),
                                        "--eval-every",
                                        std::to_string(options.train.evaluate_every),
                                        "--traced-steps",
                                        std::to_string(options.train.traced_steps),
                                        "--checkpoint-every",
                                        std::to_string(checkpoints.every),
                                        "--keep",
                                        std::to_string(checkpoints.keep),
                                        "--hang-timeout",
                                        fmt::format("{}", options.hosts.hang_timeout_s)};
  const auto pass_path = [&](const char* option, const std::string& path) {
    if (!path.empty())
      arguments.insert(arguments.end(), {option, std::filesystem::absolute(path).string()});
  };
  pass_path("--checkpoint-dir", checkpoints.folder);
  pass_path("--resume", checkpoints.resume);
  pass_path("--init-from", checkpoints.init_from);
  pass_path("--trace", options.trace.value_or(""));
  pass_path("--chrome", options.chrome.value_or(""));
  for (std::string& argument : arguments_of(options.device)) arguments.push_back(argument);
  if (options.any_placement) arguments.emplace_back("--any-placement");
  if (options.json) arguments.emplace_back("--json");
  if (options.quiet) arguments.emplace_back("--quiet");
  return launch_self(ranks, options.hosts, std::move(arguments), saves);
}

void check_placement(const Options& options, const program::Plan& plan, const runtime::Job& job) {
  if (options.any_placement || plan.cluster_json.empty()) return;
  const sim::Cluster cluster = cluster_of(plan, *options.file);
  if (cluster.device.kind == sim::DeviceKind::Cpu)
    runtime::check_placement(job.layout(), cluster.num_nodes,
                             cluster.num_ranks() / cluster.num_nodes);
}

/// One line about what is resumed, imported and saved; empty if nothing is.
std::string checkpoint_line(const program::Plan& plan,
                            const runtime::CheckpointOptions& checkpoints) {
  std::string line;
  if (!checkpoints.resume.empty()) line += fmt::format("continues {}  ", checkpoints.resume);
  if (!checkpoints.init_from.empty()) line += fmt::format("weights of {}  ", checkpoints.init_from);
  if (!checkpoints.folder.empty()) {
    std::int64_t snapshot = 0;
    for (const program::Program& program : program::lower_all(plan))
      snapshot =
          std::max(snapshot, runtime::snapshot_bytes(program, plan.parallel.dp * plan.parallel.cp));
    line += fmt::format(
        "checkpoints in {}{}, by way of {:.1f} MiB of host memory a rank", checkpoints.folder,
        checkpoints.every > 0 ? fmt::format(" every {} steps", checkpoints.every) : " at the end",
        static_cast<double>(snapshot) / kMib);
  }
  return line.empty() ? line : line + "\n";
}

int work(Options options, const program::Plan& plan, DeviceKind device_kind, runtime::Job& job) {
  prepare_process(options.device, job.layout().rank);
  check_placement(options, plan, job);
  if (job.world().rank() == 0) require_writable({options.trace, options.chrome});
  const bool speaks = job.world().rank() == 0 && !options.quiet;
  RankDevice device(options.device, device_kind, plan, job);
  const reports::RunHeader header{.plan = plan,
                                  .device = device.name(),
                                  .machines = job.layout().num_machines(),
                                  .oversubscribed = job.layout().oversubscribed(),
                                  .data = options.train.data_path};
  if (speaks && !options.json)
    fmt::print("{}{}", checkpoint_line(plan, options.train.checkpoints), reports::to_text(header));
  std::optional<runtime::StopSignal> stop;
  if (!options.train.checkpoints.folder.empty()) {
    stop.emplace();
    options.train.checkpoints.stop_requested = [&stop] { return stop->requested(); };
  }
  const int every = std::max(1, options.train.num_steps / 20);
  bool first = true;
  runtime::TrainResult result = runtime::train(
      plan, options.train, job.world(), device.device(), &job.board(),
      [&](const runtime::StepReport& step) {
        const bool shown =
            step.step % every == 0 || std::exchange(first, false) || step.evaluation_loss;
        if (!speaks || options.json || !shown) return;
        fmt::print("{}", reports::step_line({.step = step.step,
                                             .loss = step.loss,
                                             .gradient_norm = step.gradient_norm,
                                             .learning_rate = step.learning_rate,
                                             .seconds = step.seconds,
                                             .evaluation_loss = step.evaluation_loss},
                                            plan));
        std::fflush(stdout);
      });
  const int code = result.stopped ? kInterrupted : kDone;
  if (job.world().rank() != 0) return code;
  result.trace.source = device.name();
  if (options.trace) write_file(*options.trace, program::to_json(result.trace));
  if (options.chrome) write_file(*options.chrome, program::to_chrome_trace(result.trace));
  if (options.quiet) return code;
  const reports::RunSummary summary{
      .trace = result.trace,
      .arena_bytes = result.memory.arena_bytes,
      .resident_after_first_step = result.memory.resident_after_first_step,
      .resident_at_end = result.memory.resident_at_end};
  fmt::print("{}", options.json ? reports::to_json(summary) : reports::to_text(summary));
  if (result.stopped)
    fmt::print(
        stderr,
        "meshplan: stopped by a signal after step {}, which is saved; continue with --resume "
        "{}\n",
        result.steps.back().step, options.train.checkpoints.folder);
  std::fflush(stdout);
  return code;
}

/// Paths and seed of the run, from what was given and what is resumed.
void resolve_checkpoints(Options& options) {
  runtime::CheckpointOptions& checkpoints = options.train.checkpoints;
  const bool latest = options.resume == "latest";
  if (options.checkpoint_dir)
    checkpoints.folder = *options.checkpoint_dir;
  else if (options.resume && !latest)
    checkpoints.folder =
        std::filesystem::absolute(runtime::resolve_checkpoint(*options.resume)).parent_path();
  else if (latest || checkpoints.every > 0)
    checkpoints.folder = "checkpoints";
  if (options.resume)
    checkpoints.resume = runtime::resolve_checkpoint(latest ? checkpoints.folder : *options.resume);
  checkpoints.init_from = options.init_from.value_or("");
  if (!checkpoints.init_from.empty() && !runtime::is_hugging_face_folder(checkpoints.init_from))
    checkpoints.init_from = runtime::resolve_checkpoint(checkpoints.init_from);
  if (options.seed)
    options.train.seed = static_cast<std::uint64_t>(*options.seed);
  else if (!checkpoints.resume.empty())
    options.train.seed = runtime::seed_of(checkpoints.resume);
}

void check_at_least(const char* option, int value, int least) {
  if (value < least)
    throw ConfigError(fmt::format("{} {}: must be at least {}", option, value, least));
}

void check(const Options& options) {
  check_at_least("--steps", options.train.num_steps, 1);
  check_at_least("--eval-every", options.train.evaluate_every, 0);
  check_at_least("--traced-steps", options.train.traced_steps, 0);
  check_at_least("--checkpoint-every", options.train.checkpoints.every, 0);
  check_at_least("--keep", options.train.checkpoints.keep, 0);
  check_at_least("--threads-per-rank", options.device.threads_per_rank, 1);
}

int run(Options options) {
  if (options.train.data_path.empty()) options.train.data_path = runtime::kDefaultText;
  options.train.traced_steps =
      options.traced_steps.value_or(options.trace || options.chrome ? 3 : 0);
  check(options);
  resolve_checkpoints(options);
  const program::Plan plan = load_plan(options);
  const DeviceKind device = choose_device(options.device, plan, *options.file);
  if (outer_launch())
    return as_rank(options.hosts,
                   [&](runtime::Job& job) { return work(options, plan, device, job); });
  return launch(options, plan, device);
}

}  // namespace

void add_run_command(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  Command command = line.add("run", "Execute a plan: train on real text, measure, trace");
  command.positional("plan", options->file, "plan file")
      .option("--steps", options->train.num_steps, "optimizer steps")
      .option("--data", options->train.data_path,
              "text (a byte a token) or token ids (*.u16, *.u32); default: the text of the GPL")
      .option("--seed", options->seed,
              "of the initial weights and the order of the data; default: 1")
      .option("--eval-every", options->train.evaluate_every,
              "steps between evaluations on held-out text; 0 = never");
  add_device_options(command, options->device);
  add_host_options(command, options->hosts);
  command.flag("--any-placement", options->any_placement,
               "run even if the machines are not those of the plan's cluster");
  command.group("Checkpoints (docs/checkpoints.md)")
      .option("--checkpoint-dir", options->checkpoint_dir,
              "folder to save to; default: checkpoints, where --checkpoint-every asks for some")
      .option("--checkpoint-every", options->train.checkpoints.every,
              "steps between checkpoints; the last step and SIGTERM save too")
      .option("--keep", options->train.checkpoints.keep, "newest checkpoints to keep; 0 = all")
      .option("--resume", options->resume,
              "continue a run: latest, a checkpoint, or a folder of them")
      .option("--init-from", options->init_from,
              "start a new run from the weights of a checkpoint or a Hugging Face model");
  command.group("What it writes")
      .option("--trace", options->trace, "write the measured trace (meshplan's schema)")
      .option("--chrome", options->chrome, "write it for chrome://tracing or ui.perfetto.dev")
      .option("--traced-steps", options->traced_steps,
              "steps to trace after the timed ones; default: 3 with --trace")
      .flag("--json", options->json, "print the result for programs")
      .flag("--quiet", options->quiet, "print nothing; for use with --trace")
      .examples(
          "  meshplan run plan.json --steps 20\n"
          "  meshplan run plan.json --steps 50 --data book.txt --eval-every 10 --trace "
          "measured.json\n"
          "  meshplan run plan.json --steps 1000 --checkpoint-every 100 --keep 3\n"
          "  meshplan run plan.json --steps 1000 --checkpoint-every 100 --keep 3 --resume latest\n"
          "  mpiexec -n 4 meshplan run plan.json --steps 20      (a launcher of your own)")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
