// meshplan run: executes a plan on ranks of its own.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "core/units.hpp"
#include "models/spec_difference.hpp"
#include "options/inputs.hpp"
#include "options/run_options.hpp"
#include "options/run_start.hpp"
#include "output/kineto_folder.hpp"
#include "output/output.hpp"
#include "output/run_log.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/folders.hpp"
#include "process/gzip.hpp"
#include "process/own_arguments.hpp"
#include "program/checks/check.hpp"
#include "program/lower/lower.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/trace/chrome_trace.hpp"
#include "ranks/devices.hpp"
#include "ranks/interruption.hpp"
#include "ranks/plan_to_run.hpp"
#include "ranks/ranks.hpp"
#include "reports/catalog_report.hpp"
#include "reports/machine_drift.hpp"
#include "reports/run_report.hpp"
#include "runtime/measure/machine_watch.hpp"
#include "runtime/os/stop_signal.hpp"
#include "runtime/train/kept_settings.hpp"
#include "runtime/train/preflight.hpp"
#include "runtime/train/train.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "runtime/weights/hugging_face_weights.hpp"
#include "runtime/weights/snapshot_size.hpp"

namespace meshplan::cli {
namespace {

program::Plan load_plan(const RunOptions& options) {
  if (!options.file) throw ConfigError("which plan? usage: meshplan run plan.json --steps 20");
  program::Plan plan = plan_to_run(*options.file);
  plan.progress_thread = plan.progress_thread || options.progress_thread;
  add_adapters(plan, options.adapters, *options.file);
  freeze(plan, options.freeze, *options.file);
  if (apply(options.optimizer_settings, plan.workload.optimizer))
    for (const program::Violation& violation : program::check(plan))
      throw ConfigError(fmt::format("{}: {}", *options.file, violation.message));
  return plan;
}

/// @throws IoError, ConfigError if what is to be written at the end cannot be
void require_places(const RunOptions& options) {
  require_writable({options.trace, options.chrome, options.log});
  if (options.log) require_free_log(*options.log);
  if (options.kineto) require_free_folder(*options.kineto, false);
}

/// What goes on if standard output or error do not take the run's lines any more, said in its log.
void log_lost_output(const std::string& log, std::string_view stream, std::string_view cause) {
  try {
    RunLog::beside_writer(log).write(reports::lost_output_line(stream, cause));
  } catch (const std::exception&) {  // the run says so itself, with its next line
  }
}

StoppableJob stoppable_job(const RunOptions& options) {
  StoppableJob job;
  if (!options.quiet)
    job.describe = [folder = options.train.checkpoints.folder](const runtime::Interruption& end) {
      return interruption_text(end, folder, own_arguments());
    };
  if (options.log && starts_here(options.hosts))
    job.on_lost_output = [log = *options.log](std::string_view stream, std::string_view cause) {
      log_lost_output(log, stream, cause);
    };
  return job;
}

/// @param arguments  of the ranks
int launch(const RunOptions& options, std::vector<std::string> arguments, const program::Plan& plan,
           DeviceKind device) {
  const int ranks = plan.parallel.world_size();
  runtime::require_slots(parse_hosts(options.hosts), ranks);
  runtime::check_data(plan, options.train.data_path, options.train.evaluate_every > 0);
  runtime::check_start(plan, options.train);
  // Rank 0 writes; on another host it looks at its own folders, before it trains.
  if (starts_here(options.hosts)) require_places(options);
  const bool saves = !options.train.checkpoints.folder.empty();
  if (device == DeviceKind::Cpu)
    runtime::check_memory(plan, runtime::ranks_on_fullest_host(parse_hosts(options.hosts), ranks),
                          saves);
  HostOptions hosts = options.hosts;
  if (plan.progress_thread) hosts.cores_per_rank = 2;
  return launch_self(ranks, hosts, std::move(arguments), stoppable_job(options));
}

void check_placement(const RunOptions& options, const program::Plan& plan,
                     const runtime::Job& job) {
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
    const runtime::HuggingFaceModel model(checkpoints.init_from, checkpoints.assume);
    if (!model.beginning_anew().empty())
      line += fmt::format("but {} begin anew, for it has none that are read  ",
                          fmt::join(model.beginning_anew(), ", "));
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

/// In what the run goes on otherwise than before, as it was asked to, and what is taken to have
/// been alike; empty for a new run.
std::string resumed_settings(const program::Plan& plan, const RunOptions& options) {
  if (!options.resume) return "";
  const runtime::Checkpoint checkpoint = runtime::open_checkpoint(*options.resume);
  const program::Plan saved = checkpoint.plan();
  const runtime::RunState& run = checkpoint.index().run;
  const runtime::RunConfiguration before{saved, run.seed, run.settings};
  const runtime::RunConfiguration now{plan, options.train.seed,
                                      runtime::settings_of(options.train)};
  std::string lines;
  for (const auto& [name, then, today] : runtime::changed_settings(before, now))
    lines += fmt::format("changed  {} from {} to {}\n", name, then, today);
  for (const auto& [name, then, today] : runtime::assumed_settings(before, now))
    lines +=
        fmt::format("assumed  {} was {}: the checkpoint is from before it was kept\n", name, then);
  return lines;
}

/// What was read of a Hugging Face model's config.json, and where the plan chooses otherwise; empty
/// if none is imported.
std::string import_lines(const program::Plan& plan, const runtime::CheckpointOptions& checkpoints) {
  const std::string& folder = checkpoints.init_from;
  if (folder.empty() || !runtime::is_hugging_face_folder(folder)) return "";
  const models::ImportedModel imported =
      runtime::HuggingFaceModel(folder, checkpoints.assume).config();
  std::string text = reports::import_text(imported);
  for (const auto& [field, theirs, ours] : models::differences(imported.spec, plan.model))
    if (models::is_training_choice(field))
      text += fmt::format("differs  {} = {} in the plan, {} in {}\n", field, ours, theirs, folder);
  return text;
}

/// What a run says while it goes on: rank 0 prints and logs, the others are silent.
class Voice {
 public:
  Voice(const RunOptions& options, const reports::RunHeader& header, bool speaks)
      : prints_(speaks && !options.quiet && !options.json),
        warns_(speaks && !options.quiet),
        every_(std::max(1, options.train.num_steps / 20)) {
    // The log first: whoever passes the lines on may have to add to it that nobody reads them.
    if (speaks && options.log) {
      log_.emplace(*options.log, !options.train.checkpoints.resume.empty());
      log_->write(reports::to_json_line(header));
    }
    if (!prints_) return;
    output("{}{}{}{}", checkpoint_line(header.plan, options.train.checkpoints),
           resumed_settings(header.plan, options),
           import_lines(header.plan, options.train.checkpoints), reports::to_text(header));
    flush();
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
    flush();
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
    flush();
  }

 private:
  /// Without a launcher of ours it is the rank that sees its output fail; training goes on.
  void flush() {
    const std::string loss = flush_or_give_up_stdout();
    if (loss.empty()) return;
    output(stderr,
           "meshplan: warning: standard output cannot be written: {}; the job goes on without it\n",
           loss);
    if (log_) log_->write(reports::lost_output_line("standard output", loss));
  }

  bool prints_;
  bool warns_;
  int every_;
  bool first_ = true;
  bool warned_ = false;  // about busy cores
  std::optional<RunLog> log_;
};

int work(RunOptions options, const program::Plan& plan, DeviceKind device_kind, runtime::Job& job) {
  prepare_process(options.device, job.layout().rank);
  options.device.hang_timeout_s = options.hosts.hang_timeout_s / 2;
  check_placement(options, plan, job);
  const bool leads = job.world().rank() == 0;
  runtime::check_same_start(job.world(), options.train.checkpoints.folder,
                            options.resumed ? std::optional(options.resumed->step) : std::nullopt);
  if (is_done(options)) {
    if (leads) say_done(options);
    return kDone;
  }
  if (leads) require_places(options);
  options.train.keep_steps = leads;  // who writes them
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
  options.train.checkpoints.stop_signal = [&stop] {
    if (!stop) stop.emplace();  // until now, with nothing to save, a signal ends the rank
    return stop->number();
  };
  if (!options.quiet)
    options.train.checkpoints.warn = [](const std::string& line) {
      output(stderr, "meshplan: warning: {}\n", line);
    };
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
  const int code = result.stop_signal != 0 ? kInterrupted : kDone;
  if (!leads) return code;
  result.trace.source = device.name();
  if (options.trace) write_packed_file(*options.trace, program::to_json(result.trace));
  if (options.chrome) write_packed_file(*options.chrome, program::to_chrome_trace(result.trace));
  if (options.kineto) write_kineto_folder(*options.kineto, result.trace);
  voice.conclude({.trace = result.trace,
                  .timing = result.timing,
                  .experts = result.experts,
                  .gradient_norms = result.gradient_norms,
                  .arena_bytes = result.memory.arena_bytes,
                  .resident_after_first_step = result.memory.resident_after_first_step,
                  .resident_at_end = result.memory.resident_at_end,
                  .job_peak_flop_per_s = options.train.watch.job_peak_flop_per_s});
  if (result.stop_signal == 0) return code;
  const runtime::StoppedRun end{
      .signal = result.stop_signal, .last_step = result.last_step, .saved = result.saved};
  if (!runtime::tell_launcher(end) && !options.quiet)
    output(stderr, "{}",
           interruption_text({.signal = end.signal, .run = end}, options.train.checkpoints.folder,
                             own_arguments()));
  return code;
}

/// Fills in what was not given, before the device is chosen.
void resolve(RunOptions& options) {
  if (options.train.data_path.empty()) options.train.data_path = runtime::kDefaultText;
  if (!options.traced_steps)
    options.traced_steps = options.trace || options.chrome || options.kineto ? 3 : 0;
  options.train.traced_steps = *options.traced_steps;
  options.train.verify_start = !options.no_verify_start;
  resolve_start(options);
}

int run(RunOptions& options, const Command& command) {
  check(options);
  resolve(options);
  const program::Plan plan = load_plan(options);
  if (!is_rank() && is_done(options)) {
    say_done(options);
    return kDone;
  }
  const DeviceKind device = choose_device(options.device, plan, *options.file);
  if (device == DeviceKind::Cpu && options.device.gemm_cache)
    throw ConfigError(
        "--gemm-cache is for ranks on GPUs: on processor cores there is nothing to choose from");
  if (!options.time_every) options.time_every = device == DeviceKind::Cuda ? 0 : 1;
  options.train.watch.time_every = *options.time_every;
  if (is_rank())
    return as_rank(options.hosts,
                   [&](runtime::Job& job) { return work(options, plan, device, job); });
  return launch(options, command.arguments_of_ranks(), plan, device);
}

}  // namespace

void add_run_command(CommandLine& line) {
  const auto options = std::make_shared<RunOptions>();
  Command command = line.add("run", "Execute a plan: train on real text, measure, trace");
  add_run_options(command, *options);
  command
      .examples(
          "  meshplan run plan.json --steps 20\n"
          "  meshplan run plan.json --steps 50 --data book.txt --eval-every 10 --trace "
          "measured.json\n"
          "  meshplan run plan.json --steps 1000 --checkpoint-every 100 --keep 3\n"
          "  meshplan run plan.json --steps 1000 --checkpoint-every 100 --keep 3 --resume latest\n"
          "  meshplan run plan.json --steps 1000 --checkpoint-every 100 --resume latest-if-any"
          "     (and once more)\n"
          "  mpiexec -n 4 meshplan run plan.json --steps 20      (a launcher of your own)\n"
          "  torchrun --no-python --nproc-per-node 4 meshplan run plan.json --steps 20")
      .on_run([options, command] { return run(*options, command); });
}

}  // namespace meshplan::cli
