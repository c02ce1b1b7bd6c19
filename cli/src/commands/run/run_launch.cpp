#include "commands/run/run_launch.hpp"

#include <exception>
#include <filesystem>
#include <fmt/format.h>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "options/inputs.hpp"
#include "options/plan_for_ranks.hpp"
#include "options/run/run_start.hpp"
#include "output/output.hpp"
#include "output/run_log.hpp"
#include "process/files.hpp"
#include "process/folders.hpp"
#include "process/own_arguments.hpp"
#include "process/threads.hpp"
#include "program/checks/check.hpp"
#include "ranks/interruption.hpp"
#include "ranks/plan_to_run.hpp"
#include "ranks/ranks.hpp"
#include "reports/run_report.hpp"
#include "runtime/node_store/recovery.hpp"
#include "runtime/train/preflight.hpp"
#include "runtime/train/train.hpp"
#include "runtime/weights/checkpoint.hpp"

namespace meshplan::cli {
namespace {

constexpr const char* kElasticCheckpointEvery = "20";  // steps, where nobody says

}  // namespace

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

void resolve(RunOptions& options) {
  if (options.elastic.range) {
    if (!options.saving.checkpoint_every) options.saving.checkpoint_every = kElasticCheckpointEvery;
    if (!options.saving.memory_every) options.saving.memory_every = 1;
  }
  if (options.train.data_path.empty()) options.train.data_path = runtime::kDefaultText;
  if (!options.traced_steps)
    options.traced_steps = options.trace || options.chrome || options.kineto ? 3 : 0;
  options.train.traced_steps = *options.traced_steps;
  options.train.verify_start = !options.no_verify_start;
  apply_interval(options);
  resolve_start(options);
}

bool set_damaged_aside(const RunOptions& options, const Say& say) {
  const std::vector<std::string> damaged = runtime::set_damaged_aside(folder_to_save_to(options));
  for (const std::string& path : damaged)
    say(fmt::format("{0} is damaged and was renamed to {0}.damaged", path));
  return !damaged.empty();
}

void resolve_intact(RunOptions& options, const Say& say) {
  const RunOptions unresolved = options;
  try {
    resolve(options);
  } catch (const ConfigError&) {
    if (!resumes_newest(unresolved) || !set_damaged_aside(unresolved, say)) throw;
    options = unresolved;
    resolve(options);
  }
}

void write_run_plan(const std::string& path, program::Plan planned, const sim::Cluster& cluster,
                    const std::string& original_file) {
  const program::Plan original = plan_to_run(original_file);
  planned.model = original.model;
  planned.workload = original.workload;
  planned.frozen = original.frozen;
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, failed);
  write_file(path, plan_file_text(std::move(planned), cluster));
}

void plan_again(RunOptions& options, const program::Plan& plan) {
  const PlanForRanks made = plan_for_ranks(plan, cluster_of(plan, *options.file), *options.ranks,
                                           *options.file, on_threads(0));
  const std::string name = fmt::format("plan-{}-ranks.json", *options.ranks);
  const std::string& folder = options.train.checkpoints.folder;
  const std::string path = folder.empty() ? name : folder + "/" + name;
  write_run_plan(path, made.plan, made.cluster, *options.file);
  if (!options.quiet)
    output(stderr, "meshplan: {} ranks instead of {}: {}; written to {}\n", *options.ranks,
           plan.parallel.world_size(), made.change, path);
  options.file = path;
}

DeviceKind choose_device(RunOptions& options, const program::Plan& plan) {
  const DeviceKind device = choose_device(options.device, plan, *options.file);
  if (device == DeviceKind::Cpu && options.device.gemm_cache)
    throw ConfigError(
        "--gemm-cache is for ranks on GPUs: on processor cores there is nothing to choose from");
  constexpr int kRarely = 10;  // a timed step replays no captured work
  if (!options.time_every)
    options.time_every = device == DeviceKind::Cpu            ? 1
                         : options.elastic.replace_slow_ranks ? kRarely
                                                              : 0;
  options.train.watch.time_every = *options.time_every;
  return device;
}

void require_places(const RunOptions& options) {
  require_writable({options.trace, options.chrome, options.log});
  if (options.log) require_free_log(*options.log);
  if (options.kineto) require_free_folder(*options.kineto, false);
}

namespace {

/// What goes on if standard output or error do not take the run's lines any more, said in its log.
void log_lost_output(const std::string& log, std::string_view stream, std::string_view cause) {
  try {
    RunLog::beside_writer(log).write(reports::lost_output_line(stream, cause));
  } catch (const std::exception&) {  // the run says so itself, with its next line
  }
}

StoppableJob stoppable_job(const RunOptions& options, const JobWatch& watch) {
  StoppableJob job{.wants_stop = watch.wants_stop, .on_step = watch.on_step};
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

}  // namespace

runtime::JobEnd launch(const RunOptions& options, const Command& command, const program::Plan& plan,
                       DeviceKind device, const JobWatch& watch) {
  const int ranks = plan.parallel.world_size();
  runtime::require_slots(parse_hosts(options.hosts), ranks);
  runtime::check_data(plan, options.train.data_path, options.train.evaluate_every > 0);
  runtime::check_start(plan, options.train);
  // Rank 0 writes; on another host it looks at its own folders, before it trains.
  if (starts_here(options.hosts)) require_places(options);
  const runtime::CheckpointOptions& checkpoints = options.train.checkpoints;
  int state_copies = checkpoints.folder.empty() ? 0 : 1;
  if (checkpoints.memory.every > 0)
    state_copies += runtime::kept_states(static_cast<int>(parse_hosts(options.hosts).size()));
  if (device == DeviceKind::Cpu)
    runtime::check_memory(plan, runtime::ranks_on_fullest_host(parse_hosts(options.hosts), ranks),
                          state_copies);
  HostOptions hosts = options.hosts;
  if (plan.progress_thread) hosts.cores_per_rank = 2;
  return run_self(ranks, hosts, command.arguments_of_ranks(), stoppable_job(options, watch));
}

}  // namespace meshplan::cli
