// meshplan run: executes a plan on ranks of its own.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <utility>

#include "commands/commands.hpp"
#include "commands/run/run_launch.hpp"
#include "commands/run/supervisor.hpp"
#include "core/error.hpp"
#include "core/units.hpp"
#include "models/spec_difference.hpp"
#include "options/inputs.hpp"
#include "options/plan_for_ranks.hpp"
#include "options/run/run_options.hpp"
#include "options/run/run_start.hpp"
#include "output/kineto_folder.hpp"
#include "output/output.hpp"
#include "output/run_log.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/folders.hpp"
#include "process/gzip.hpp"
#include "process/own_arguments.hpp"
#include "process/threads.hpp"
#include "program/checks/check.hpp"
#include "program/memory/saved_share.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/trace/chrome_trace.hpp"
#include "ranks/devices.hpp"
#include "ranks/interruption.hpp"
#include "ranks/plan_to_run.hpp"
#include "ranks/ranks.hpp"
#include "reports/catalog_report.hpp"
#include "reports/machine_drift.hpp"
#include "reports/run_report.hpp"
#include "requests/predicted_saves.hpp"
#include "runtime/measure/machine_watch.hpp"
#include "runtime/node_store/recovery.hpp"
#include "runtime/os/stop_signal.hpp"
#include "runtime/train/kept_settings.hpp"
#include "runtime/train/preflight.hpp"
#include "runtime/train/train.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "runtime/weights/hugging_face_weights.hpp"

namespace meshplan::cli {
namespace {

void check_placement(const RunOptions& options, const program::Plan& plan,
                     const runtime::Job& job) {
  if (options.any_placement || plan.cluster_json.empty()) return;
  const sim::Cluster cluster = cluster_of(plan, *options.file);
  if (cluster.device.kind == sim::DeviceKind::Cpu)
    runtime::check_placement(job.layout(), cluster.num_nodes,
                             cluster.num_ranks() / cluster.num_nodes);
}

/// What is saved where, and what memory that takes; empty if nothing is.
std::string folder_line(const PredictedSaves& saves,
                        const runtime::CheckpointOptions& checkpoints) {
  if (checkpoints.folder.empty()) return "";
  std::string when = " at the end";
  if (checkpoints.every > 0) when = fmt::format(" every {} steps", checkpoints.every);
  if (checkpoints.device_mtbf_s) when = " as often as failures ask for";
  return fmt::format("checkpoints in {}{}, by way of {:.1f} MiB of host memory a rank",
                     checkpoints.folder, when, static_cast<double>(saves.bytes) / kMib);
}

/// What is kept in the memory of nodes, and for how long that is predicted to hold up a step; empty
/// if nothing is.
std::string memory_line(const PredictedSaves& saves, const runtime::NodeStoreOptions& memory) {
  if (memory.every == 0) return "";
  const std::set<std::string> nodes(memory.nodes.begin(), memory.nodes.end());
  const auto bytes = static_cast<double>(saves.bytes);
  std::string stall;
  if (saves.memory)
    stall = fmt::format(", which holds up a step by {:.3g} ms (predicted)",
                        saves.memory->stall_s * kMilliseconds);
  return fmt::format(
      "memory      every {} steps a rank copies {:.1f} MiB{}; stores on {} node{} take {:.1f} MiB "
      "a "
      "rank{}\n",
      memory.every, bytes / kMib, stall, nodes.size(), nodes.size() == 1 ? "" : "s",
      bytes * program::kept_states(static_cast<int>(nodes.size())) / kMib,
      nodes.size() == 1 ? "" : ", copies for another node included");
}

/// One line about what is resumed, imported and saved; empty if nothing is.
std::string checkpoint_line(const PredictedSaves& saves,
                            const runtime::CheckpointOptions& checkpoints) {
  std::string line;
  if (checkpoints.recovered)
    return fmt::format("continues {}  {}\n", checkpoints.recovered->label(),
                       folder_line(saves, checkpoints));
  if (!checkpoints.resume.empty()) line += fmt::format("continues {}  ", checkpoints.resume);
  if (!checkpoints.init_from.empty()) line += fmt::format("weights of {}  ", checkpoints.init_from);
  if (!checkpoints.init_from.empty() && runtime::is_hugging_face_folder(checkpoints.init_from)) {
    const runtime::HuggingFaceModel model(checkpoints.init_from, checkpoints.assume);
    if (!model.beginning_anew().empty())
      line += fmt::format("but {} begin anew, for it has none that are read  ",
                          fmt::join(model.beginning_anew(), ", "));
  }
  line += folder_line(saves, checkpoints);
  return line.empty() ? line : line + "\n";
}

/// In what the run goes on otherwise than before, as it was asked to, and what is taken to have
/// been alike; empty for a new run.
std::string resumed_settings(const program::Plan& plan, const RunOptions& options) {
  if (!continues(options)) return "";
  const runtime::CheckpointOptions& checkpoints = options.train.checkpoints;
  const runtime::CheckpointIndex index = checkpoints.recovered
                                             ? checkpoints.recovered->index()
                                             : runtime::open_checkpoint(checkpoints.resume).index();
  const program::Plan saved = program::parse_plan(index.plan_json, "the plan of the resumed run");
  const runtime::RunState& run = index.run;
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

std::optional<sim::Cluster> cluster_if_any(const program::Plan& plan, const std::string& file) {
  if (plan.cluster_json.empty()) return std::nullopt;
  return cluster_of(plan, file);
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
      log_.emplace(*options.log, continues(options));
      log_->write(reports::to_json_line(header));
    }
    if (speaks && !options.train.checkpoints.folder.empty())
      saves_ = predicted_saves(header.plan, cluster_if_any(header.plan, *options.file));
    if (!prints_) return;
    output("{}{}{}{}{}", checkpoint_line(saves_, options.train.checkpoints),
           memory_line(saves_, options.train.checkpoints.memory),
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

  void conclude(reports::RunSummary summary) {
    add(saves_, summary.saving);
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
  PredictedSaves saves_;
  std::optional<RunLog> log_;
};

runtime::StepNews news_of(const program::StepReport& step) {
  runtime::StepNews news{.step = step.step, .seconds = step.seconds};
  if (!step.slow_rank) return news;
  news.slow_rank = step.slow_rank->rank;
  news.slow_times = step.slow_rank->times;
  return news;
}

/// The plan for the ranks that another launcher has started, made by rank 0 for all.
program::Plan plan_of_job(const RunOptions& options, program::Plan plan, runtime::Job& job) {
  const int ranks = job.world().size();
  if (!options.elastic.range || ranks == plan.parallel.world_size()) return plan;
  std::string text;
  if (job.world().rank() == 0) {
    const PlanForRanks made =
        plan_for_ranks(plan, cluster_of(plan, *options.file), ranks, *options.file, on_threads(0));
    text = plan_file_text(made.plan, made.cluster);
    if (!options.quiet)
      output(stderr, "meshplan: elastic: {} ranks instead of {}: {}\n", ranks,
             plan.parallel.world_size(), made.change);
  }
  return program::read_plan(runtime::broadcast_text(job.world(), 0, std::move(text)),
                            "the plan of rank 0");
}

int work(RunOptions options, const program::Plan& file_plan, DeviceKind device_kind,
         runtime::Job& job) {
  const program::Plan plan = plan_of_job(options, file_plan, job);
  prepare_process(options.device, job.layout().rank);
  options.device.hang_timeout_s = options.hosts.hang_timeout_s / 2;
  check_placement(options, plan, job);
  const bool leads = job.world().rank() == 0;
  take_newest_state(options, job.world(), job.layout());
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
  std::optional<runtime::StepLine> to_launcher;
  if (leads) to_launcher.emplace();
  runtime::TrainResult result =
      runtime::train(plan, options.train, job.world(), device.device(), &job.board(),
                     [&](const program::StepReport& step) {
                       voice.say(step);
                       if (to_launcher) to_launcher->say(news_of(step));
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
                  .job_peak_flop_per_s = options.train.watch.job_peak_flop_per_s,
                  .saving = result.saving});
  if (result.stop_signal == 0) return code;
  const runtime::StoppedRun end{
      .signal = result.stop_signal, .last_step = result.last_step, .saved = result.saved};
  if (!runtime::tell_launcher(end) && !options.quiet)
    output(stderr, "{}",
           interruption_text({.signal = end.signal, .run = end}, options.train.checkpoints.folder,
                             own_arguments()));
  return code;
}

int run(RunOptions& options, const Command& command) {
  check(options);
  if (options.elastic.range && !is_rank()) return supervise(options, command);
  const Say say = [&options](const std::string& line) {
    if (!options.quiet) output(stderr, "meshplan: elastic: {}\n", line);
  };
  if (options.elastic.range)
    resolve_intact(options, say);
  else
    resolve(options);
  program::Plan plan = load_plan(options);
  if (options.ranks && *options.ranks != plan.parallel.world_size() && !is_rank()) {
    plan_again(options, plan);
    plan = load_plan(options);
  }
  if (!is_rank() && is_done(options)) {
    say_done(options);
    return kDone;
  }
  const DeviceKind device = choose_device(options, plan);
  if (is_rank())
    return as_rank(options.hosts, [&](runtime::Job& job) {
      try {
        return work(options, plan, device, job);
      } catch (const ConfigError&) {
        // The launcher starts all ranks again, which then find an older checkpoint.
        if (options.elastic.range && resumes_newest(options)) set_damaged_aside(options, say);
        throw;
      }
    });
  return launch(options, command, plan, device).code;
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
