// meshplan run: executes a plan on ranks of its own.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/units.hpp"
#include "devices.hpp"
#include "exit_codes.hpp"
#include "files.hpp"
#include "inputs.hpp"
#include "models/spec_difference.hpp"
#include "output.hpp"
#include "program/lower.hpp"
#include "ranks.hpp"
#include "reports/catalog_report.hpp"
#include "reports/machine_drift.hpp"
#include "reports/run_report.hpp"
#include "run_log.hpp"
#include "runtime/measure/machine_watch.hpp"
#include "runtime/os/stop_signal.hpp"
#include "runtime/train/preflight.hpp"
#include "runtime/train/train.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "runtime/weights/hugging_face_weights.hpp"
#include "runtime/weights/snapshot_size.hpp"

namespace meshplan::cli {
namespace {

struct Options {
  std::optional<std::string> file;
  runtime::TrainOptions train;
  std::optional<std::int64_t> seed;
  std::optional<std::string> checkpoint_dir;
  std::optional<std::string> resume;
  std::optional<std::string> init_from;
  std::optional<std::string> freeze;
  std::optional<int> traced_steps;
  std::optional<std::string> trace;
  std::optional<std::string> chrome;
  std::optional<std::string> log;
  std::optional<int> time_every;
  DeviceOptions device;
  bool progress_thread = false;
  bool any_placement = false;
  bool no_verify_start = false;
  bool json = false;
  bool quiet = false;
  HostOptions hosts;
};

program::Plan load_plan(const Options& options) {
  if (!options.file) throw ConfigError("which plan? usage: meshplan run plan.json --steps 20");
  program::Plan plan = program::parse_plan(read_file(*options.file), *options.file);
  plan.progress_thread = plan.progress_thread || options.progress_thread;
  freeze(plan, options.freeze, *options.file);
  return plan;
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

/// The command line of each rank.
std::vector<std::string> arguments_of_ranks(const Options& options) {
  std::vector<std::string> arguments = {"run"};
  const auto absolute = [](const std::string& path) {
    return std::filesystem::absolute(path).string();
  };
  const auto pass = [&](const char* option, const auto& value) {
    arguments.insert(arguments.end(), {option, fmt::format("{}", value)});
  };
  const auto pass_path = [&](const char* option, const std::string& path) {
    if (!path.empty()) pass(option, absolute(path));
  };
  const auto pass_flag = [&](const char* option, bool given) {
    if (given) arguments.emplace_back(option);
  };
  const runtime::TrainOptions& train = options.train;
  arguments.push_back(absolute(*options.file));
  pass("--steps", train.num_steps);
  pass("--data", absolute(train.data_path));
  pass("--seed", train.seed);
  pass("--eval-every", train.evaluate_every);
  pass("--traced-steps", train.traced_steps);
  pass("--checkpoint-every", train.checkpoints.every);
  pass("--keep", train.checkpoints.keep);
  pass("--loss-scale", train.loss_scaling.initial);
  pass("--loss-scale-growth", train.loss_scaling.growth);
  pass("--loss-scale-backoff", train.loss_scaling.backoff);
  pass("--loss-scale-interval", train.loss_scaling.growth_interval);
  pass("--verify", train.verify_every);
  pass("--time-every", train.watch.time_every);
  pass("--warn-loss-spike", train.watch.loss_spike);
  pass("--warn-slow-rank", train.watch.slow_rank);
  pass("--hang-timeout", options.hosts.hang_timeout_s);
  pass_path("--checkpoint-dir", train.checkpoints.folder);
  pass_path("--resume", train.checkpoints.resume);
  pass_path("--init-from", train.checkpoints.init_from);
  pass_path("--trace", options.trace.value_or(""));
  pass_path("--chrome", options.chrome.value_or(""));
  pass_path("--log", options.log.value_or(""));
  for (std::string& argument : arguments_of(options.device)) arguments.push_back(argument);
  pass_flag("--progress-thread", options.progress_thread);
  if (options.freeze) pass("--freeze", *options.freeze);
  pass_flag("--any-placement", options.any_placement);
  pass_flag("--no-verify-start", options.no_verify_start);
  pass_flag("--json", options.json);
  pass_flag("--quiet", options.quiet);
  return arguments;
}

int launch(const Options& options, const program::Plan& plan, DeviceKind device) {
  runtime::check_data(plan, options.train.data_path, options.train.evaluate_every > 0);
  runtime::check_start(plan, options.train);
  // Rank 0 writes; on another host it looks at its own folders, before it trains.
  if (starts_here(options.hosts)) require_writable({options.trace, options.chrome, options.log});
  const int ranks = plan.parallel.world_size();
  const bool saves = !options.train.checkpoints.folder.empty();
  if (device == DeviceKind::Cpu)
    runtime::check_memory(plan, ranks_on_fullest_host(options.hosts, ranks), saves);
  HostOptions hosts = options.hosts;
  if (plan.progress_thread) hosts.cores_per_rank = 2;
  return launch_self(ranks, hosts, arguments_of_ranks(options), saves);
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
  if (!checkpoints.init_from.empty() && runtime::is_hugging_face_folder(checkpoints.init_from)) {
    const runtime::HuggingFaceModel model(checkpoints.init_from);
    if (!model.beginning_anew().empty())
      line +=
          fmt::format("but {} begin anew: it has none  ", fmt::join(model.beginning_anew(), ", "));
  }
  if (!checkpoints.folder.empty()) {
    std::int64_t snapshot = 0;
    for (const program::Program& program : program::lower_all(plan))
      snapshot = std::max(snapshot, runtime::snapshot_bytes(program));
    line += fmt::format(
        "checkpoints in {}{}, by way of {:.1f} MiB of host memory a rank", checkpoints.folder,
        checkpoints.every > 0 ? fmt::format(" every {} steps", checkpoints.every) : " at the end",
        static_cast<double>(snapshot) / kMib);
  }
  return line.empty() ? line : line + "\n";
}

/// What was read of a Hugging Face model's config.json, and where the plan chooses otherwise; empty
/// if none is imported.
std::string import_lines(const program::Plan& plan, const runtime::CheckpointOptions& checkpoints) {
  const std::string& folder = checkpoints.init_from;
  if (folder.empty() || !runtime::is_hugging_face_folder(folder)) return "";
  const models::ImportedModel imported = runtime::HuggingFaceModel(folder).config();
  std::string text = reports::import_text(imported);
  for (const auto& [field, theirs, ours] : models::differences(imported.spec, plan.model))
    if (models::is_training_choice(field))
      text += fmt::format("differs  {} = {} in the plan, {} in {}\n", field, ours, theirs, folder);
  return text;
}

/// What a run says while it goes on: rank 0 prints and logs, the others are silent.
class Voice {
 public:
  Voice(const Options& options, const reports::RunHeader& header, bool speaks)
      : speaks_(speaks),
        prints_(speaks && !options.quiet && !options.json),
        warns_(speaks && !options.quiet),
        every_(std::max(1, options.train.num_steps / 20)) {
    if (prints_)
      output("{}{}{}", checkpoint_line(header.plan, options.train.checkpoints),
             import_lines(header.plan, options.train.checkpoints), reports::to_text(header));
    if (!speaks || !options.log) return;
    log_.emplace(*options.log, !options.train.checkpoints.resume.empty());
    log_->write(reports::to_json_line(header));
  }

  void say(const program::StepReport& step) {
    if (log_) log_->write(program::to_json_line(step));
    if (warns_)
      for (const std::string& warning : step.warnings)
        output(stderr, "meshplan: warning: step {}: {}\n", step.step, warning);
    const bool shown =
        step.step % every_ == 0 || std::exchange(first_, false) || step.evaluation_loss;
    if (!prints_ || !shown) return;
    output("{}", reports::step_line(step));
    std::fflush(stdout);
  }

  /// Once. @param busy_cores  empty: nothing to say
  void warn(const std::string& busy_cores) {
    if (!warns_ || busy_cores.empty() || std::exchange(warned_, true)) return;
    output(stderr, "meshplan: warning: {}; steps take longer than on a quiet machine\n",
           busy_cores);
  }

  void conclude(const reports::RunSummary& summary) {
    if (summary.trace.machine) warn(reports::busy_cores(*summary.trace.machine));
    if (log_) log_->write(reports::to_json_line(summary));
    if (prints_) output("{}", reports::to_text(summary));
    if (warns_ && !prints_) output("{}", reports::to_json(summary));
  }

 private:
  bool speaks_;
  bool prints_;
  bool warns_;
  int every_;
  bool first_ = true;
  bool warned_ = false;  // about busy cores
  std::optional<RunLog> log_;
};

int work(Options options, const program::Plan& plan, DeviceKind device_kind, runtime::Job& job) {
  prepare_process(options.device, job.layout().rank);
  options.device.hang_timeout_s = options.hosts.hang_timeout_s / 2;
  check_placement(options, plan, job);
  const bool leads = job.world().rank() == 0;
  if (leads) require_writable({options.trace, options.chrome, options.log});
  RankDevice device(options.device, device_kind, plan.parallel.pp, job);
  reports::RunHeader header{.plan = plan,
                            .device = device.name(),
                            .machines = job.layout().num_machines(),
                            .oversubscribed = job.layout().oversubscribed(),
                            .data = options.train.data_path,
                            .seed = options.train.seed,
                            .num_steps = options.train.num_steps,
                            .evaluate_every = options.train.evaluate_every};
  if (!plan.cluster_json.empty()) {
    header.peak = reports::peak_of(plan, cluster_of(plan, *options.file));
    options.train.watch.job_peak_flop_per_s = header.peak->job_flop_per_s;
  }
  Voice voice(options, header, leads);
  options.train.gemm_cache = options.device.gemm_cache.value_or("");
  if (!options.quiet)
    options.train.log = [](const std::string& line) { output(stderr, "meshplan: {}\n", line); };
  std::optional<runtime::StopSignal> stop;
  if (!options.train.checkpoints.folder.empty()) {
    stop.emplace();
    options.train.checkpoints.stop_requested = [&stop] { return stop->requested(); };
  }
  runtime::MachineWatch machine(job.world(), job.layout(), make_reference_product(device_kind));
  int steps = 0;
  runtime::TrainResult result =
      runtime::train(plan, options.train, job.world(), device.device(), &job.board(),
                     [&](const program::StepReport& step) {
                       voice.say(step);
                       // Early enough to stop a long run; a short one is told at its end.
                       constexpr int kEarly = 3, kLong = 10;
                       if (++steps == kEarly && options.train.num_steps >= kLong)
                         voice.warn(reports::busy_cores(machine.cores()));
                     });
  result.trace.machine = machine.finish();
  const int code = result.stopped ? kInterrupted : kDone;
  if (!leads) return code;
  result.trace.source = device.name();
  if (options.trace) write_file(*options.trace, program::to_json(result.trace));
  if (options.chrome) write_file(*options.chrome, program::to_chrome_trace(result.trace));
  voice.conclude({.trace = result.trace,
                  .timing = result.timing,
                  .experts = result.experts,
                  .arena_bytes = result.memory.arena_bytes,
                  .resident_after_first_step = result.memory.resident_after_first_step,
                  .resident_at_end = result.memory.resident_at_end,
                  .job_peak_flop_per_s = options.train.watch.job_peak_flop_per_s});
  if (result.stopped && !options.quiet)
    output(stderr,
           "meshplan: stopped by a signal after step {}, which is saved; continue with --resume "
           "{}\n",
           result.last_step, options.train.checkpoints.folder);
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

void check_not_negative(const char* option, double value) {
  if (!(value >= 0)) throw ConfigError(fmt::format("{} {}: must be at least 0", option, value));
}

void check(const runtime::LossScaling& scaling) {
  const auto require = [](const char* option, double value, bool holds, const char* rule) {
    if (!holds) throw ConfigError(fmt::format("{} {}: must be {}", option, value, rule));
  };
  require("--loss-scale", scaling.initial, scaling.initial >= 1 && scaling.initial <= 0x1p96,
          "from 1 to 2^96");
  require("--loss-scale-growth", scaling.growth, scaling.growth >= 1, "at least 1");
  require("--loss-scale-backoff", scaling.backoff, scaling.backoff > 0 && scaling.backoff < 1,
          "between 0 and 1");
  check_at_least("--loss-scale-interval", scaling.growth_interval, 1);
}

void check(const Options& options) {
  check(options.train.loss_scaling);
  check_at_least("--steps", options.train.num_steps, 1);
  check_at_least("--eval-every", options.train.evaluate_every, 0);
  check_at_least("--traced-steps", options.train.traced_steps, 0);
  check_at_least("--checkpoint-every", options.train.checkpoints.every, 0);
  check_at_least("--verify", options.train.verify_every, 0);
  check_at_least("--time-every", options.train.watch.time_every, 0);
  check_not_negative("--warn-loss-spike", options.train.watch.loss_spike);
  check_not_negative("--warn-slow-rank", options.train.watch.slow_rank);
  check_at_least("--keep", options.train.checkpoints.keep, 0);
  check_at_least("--threads-per-rank", options.device.threads_per_rank, 1);
}

int run(Options options) {
  if (options.train.data_path.empty()) options.train.data_path = runtime::kDefaultText;
  options.train.traced_steps =
      options.traced_steps.value_or(options.trace || options.chrome ? 3 : 0);
  options.train.watch.time_every = options.time_every.value_or(1);
  options.train.verify_start = !options.no_verify_start;
  check(options);
  resolve_checkpoints(options);
  const program::Plan plan = load_plan(options);
  const DeviceKind device = choose_device(options.device, plan, *options.file);
  if (device == DeviceKind::Cpu && options.device.gemm_cache)
    throw ConfigError(
        "--gemm-cache is for ranks on GPUs: on processor cores there is nothing to choose from");
  if (device == DeviceKind::Cuda && !options.time_every) options.train.watch.time_every = 0;
  if (is_rank())
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
      .option("--freeze", options->freeze, kFreezeHelp)
      .option("--eval-every", options->train.evaluate_every,
              "steps between evaluations on held-out text; 0 = never");
  command.group("Loss scaling, of plans in fp16 (docs/watching.md)")
      .option("--loss-scale", options->train.loss_scaling.initial, "at the start")
      .option("--loss-scale-growth", options->train.loss_scaling.growth,
              "its factor after an interval without an overflow")
      .option("--loss-scale-backoff", options->train.loss_scaling.backoff,
              "its factor after an overflow, whose step updates nothing")
      .option("--loss-scale-interval", options->train.loss_scaling.growth_interval,
              "steps of an interval");
  add_device_options(command, options->device);
  command.option("--gemm-cache", options->device.gemm_cache,
                 "folder that keeps which kernel of a GPU's matrix products is fastest; what it "
                 "lacks is timed before the first step");
  add_host_options(command, options->hosts);
  command.flag("--progress-thread", options->progress_thread,
               "a thread of each rank moves communications while it computes, whatever the plan "
               "says; uses spare cores");
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
  command.group("Watching it (docs/watching.md)")
      .option("--log", options->log, "write a line of JSON per step to this file; --resume appends")
      .option("--time-every", options->time_every,
              "steps from one whose operations are timed to the next; 0 = none; default: 1 on "
              "CPUs, 0 on GPUs, which replay no captured work in a timed step")
      .option("--verify", options->train.verify_every,
              "steps between comparisons of what several ranks hold, bit for bit; 0 = never")
      .flag("--no-verify-start", options->no_verify_start,
            "do not compare what several ranks hold before the first step")
      .option("--warn-loss-spike", options->train.watch.loss_spike,
              "standard deviations above the last losses that are worth a warning; 0 = never")
      .option("--warn-slow-rank", options->train.watch.slow_rank,
              "warn about a rank that computes so many times as long as its peers; 0 = never");
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
          "  mpiexec -n 4 meshplan run plan.json --steps 20      (a launcher of your own)\n"
          "  torchrun --no-python --nproc-per-node 4 meshplan run plan.json --steps 20")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
