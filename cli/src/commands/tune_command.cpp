// meshplan tune: the fastest plan by measurement: search, run the best, learn, search again.
#include <filesystem>
#include <fmt/format.h>
#include <map>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "program/plan/plan_names.hpp"
#include "program/plan_file/plan_file.hpp"
#include "ranks/devices.hpp"
#include "reports/search_json.hpp"
#include "reports/search_report.hpp"
#include "requests/plan_request.hpp"
#include "runtime/train/preflight.hpp"
#include "tune/first_calibration.hpp"
#include "tune/tune_folder.hpp"
#include "tune/tuner.hpp"

namespace meshplan::cli {
namespace {

constexpr const char* kTuningGroup = "The search, and what is measured";

struct TuneOptions {
  PlanRequest request;
  std::optional<std::string> out;
  std::string folder = "tune";
  std::string data = runtime::kDefaultText;
  planner::TunePolicy policy;
  int steps = 6;
  bool json = false;
  DeviceOptions device;
  Terminal terminal;
  HostOptions hosts;
};

void check(const TuneOptions& options) {
  if (options.request.plan.stack.software &&
      *options.request.plan.stack.software != sim::kOwnSoftware)
    throw ConfigError(
        fmt::format("--software {}: tune runs plans, and meshplan runs its own; leave it out",
                    *options.request.plan.stack.software));
  if (!options.request.plan.set.empty())
    throw ConfigError(fmt::format("--set {}: tune measures the machine as it is; leave it out",
                                  options.request.plan.set.front()));
  if (!options.request.plan.slow_ranks.empty())
    throw ConfigError(
        fmt::format("--slow-rank {}: tune measures the machine as it is; leave it out",
                    options.request.plan.slow_ranks.front()));
  if (!(options.policy.most_seconds > 0))
    throw ConfigError(
        fmt::format("--most-seconds {:g}: must be more than 0", options.policy.most_seconds));
}

/// The flags of a group, as they were given.
std::vector<std::string> words_of(const Command& command, const std::string& group) {
  std::vector<std::string> words;
  for (const GivenOption& option : command.given(group)) {
    words.push_back(option.flag);
    if (!option.value.empty()) words.push_back(option.value);
  }
  return words;
}

/// What the measurements of a folder are of. Limits (--top, --most-seconds, rounds) may change.
std::map<std::string, std::string> identity(const TuneOptions& options, const Command& command) {
  const PlanOptions& plan = options.request.plan;
  if (!plan.model) throw ConfigError("--model is missing; for example --model tiny-llama");
  const models::ModelSpec model = load_model(*plan.model, plan.reading).spec;
  const auto or_default = [](const auto& value) {
    return value ? fmt::format("{}", *value) : std::string("default");
  };
  std::map<std::string, std::string> request{
      {"model", fmt::format("{} {}", model.name, hex(content_hash(models::to_json(model))))},
      {"cluster", plan.cluster
                      ? fmt::format("{} {}", *plan.cluster,
                                    hex(content_hash(sim::to_json(load_cluster(*plan.cluster)))))
                      : std::string("calibrated here")},
      {"gpus", or_default(plan.ranks)},
      {"global_batch", or_default(plan.global_batch)},
      {"seq_len", or_default(plan.seq_len)},
      {"precision", plan.precision ? std::string(name_of(*plan.precision)) : "default"},
      {"data", std::filesystem::absolute(options.data).string()}};
  for (const char* group : {kWorkloadGroup, kOptimizerGroup, kParallelGroup})
    for (const GivenOption& option : command.given(group)) {
      const std::string name = option.flag.substr(2);
      if (name == "model" || name == "cluster" || name == "gpus" || name == "global-batch" ||
          name == "seq-len" || name == "precision")
        continue;
      request[name] = option.value.empty() ? "yes" : option.value;
    }
  for (const GivenOption& option : command.given(kTuningGroup))
    for (const char* name : {"space", "fix", "min", "max", "memory-reserve"})
      if (option.flag.substr(2) == name) request[name] = option.value;
  for (const char* group : {"What it computes on", "Where it runs"})
    for (const GivenOption& option : command.given(group))
      request[option.flag.substr(2)] = option.value.empty() ? "yes" : option.value;
  request.erase("hang-timeout");
  return request;
}

/// The cluster to begin with is in the folder. @returns the exit code if it cannot be measured
int provide_cluster(const TuneOptions& options, const Command& command, const TuneFolder& folder) {
  if (folder.cluster()) return kDone;
  const PlanOptions& plan = options.request.plan;
  const FirstCalibration calibration{.plan = plan,
                                     .device = options.device,
                                     .device_flags = words_of(command, "What it computes on"),
                                     .hosts = options.hosts};
  if (plan.cluster) {
    folder.keep_cluster(load_cluster(*plan.cluster));
    return kDone;
  }
  output(stderr, "no --cluster: calibrating first\n");
  const std::variant<sim::Cluster, int> calibrated = calibrate_first(calibration);
  if (const int* code = std::get_if<int>(&calibrated)) return *code;
  folder.keep_cluster(std::get<sim::Cluster>(calibrated));
  return kDone;
}

int infeasible(const TuneOptions& options, const planner::InfeasibleResult& result) {
  output("{}", options.json ? reports::to_json(planner::SearchOutcome(result))
                            : reports::to_text(result, 0));
  return kInfeasible;
}

int conclude(const TuneOptions& options, const Tuner& tuner, const TuneFolder& folder) {
  const reports::TuneReport& report = tuner.report();
  output("{}", options.json ? reports::to_json(report) : reports::to_text(report));
  if (report.stop == planner::TuneStop::Interrupted) return kInterrupted;
  const std::optional<program::Plan> best = tuner.best();
  if (!best) {
    if (report.stop == planner::TuneStop::TimeUsed)
      output(stderr,
             "meshplan: no plan was measured in --most-seconds {:g}; with more the same command "
             "goes on\n",
             report.policy.most_seconds);
    for (const planner::TuneCandidate& candidate : report.candidates)
      if (candidate.failure) {
        output(stderr, "meshplan: no plan could be run; {}: {}\n", reports::describe(candidate),
               *candidate.failure);
        break;
      }
    return kFailed;
  }
  if (options.out) write_file(*options.out, program::to_json(*best));
  if (!options.json)
    output("cluster as measured -> {}{}\n", folder.path_of("refined.json"),
           options.out ? fmt::format("; plan -> {}", *options.out) : "");
  return kDone;
}

int run(const TuneOptions& options, const Command& command) {
  check(options);
  require_writable({options.out});
  TuneFolder folder(options.folder, identity(options, command));
  if (const int code = provide_cluster(options, command, folder); code != kDone) return code;
  PlanRequest request = options.request;
  request.plan.cluster = folder.path_of("cluster.json");
  ResolvedRequest resolved = resolve(request);
  if (!options.json)
    output("{}\n", reports::request_header(resolved.request, resolved.assumptions));
  Tuner tuner({.search = std::move(resolved.request),
               .policy = options.policy,
               .data = options.data,
               .steps = options.steps,
               .threads = request.threads,
               .device_flags = words_of(command, "What it computes on"),
               .hosts = options.hosts,
               .terminal = options.terminal},
              folder);
  if (const auto nothing = tuner.run()) return infeasible(options, *nothing);
  return conclude(options, tuner, folder);
}

}  // namespace

void add_tune_command(CommandLine& line) {
  const auto options = std::make_shared<TuneOptions>();
  options->terminal = line.terminal();
  Command command =
      line.add("tune", "Find the fastest plan by running the best ones and learning from it");
  add_workload_options(command, options->request.plan);
  add_parallel_options(command, options->request.plan);
  command.group(kTuningGroup);
  add_search_options(command, options->request.search);
  command
      .option("-j,--threads", options->request.threads,
              "threads of the search, at most one a core; 0 = all cores")
      .option("--memory-reserve", options->request.memory_reserve, kMemoryReserveHelp)
      .option("--top", options->policy.top, "plans to measure at most")
      .at_least(1)
      .option("--most-seconds", options->policy.most_seconds,
              "of running plans, runs before an interruption included; the one that is under way "
              "then is ended")
      .option("--rounds", options->policy.least_rounds, "runs of a plan that may be chosen")
      .at_least(1)
      .option("--steps", options->steps, "of a run; the first is warm-up")
      .at_least(2)
      .option("--data", options->data, "text or token file")
      .is_path()
      .option("--folder", options->folder,
              "where measurements are kept; the same command goes on from there")
      .is_path()
      .option("-o,--out", options->out, "write the measured best plan to this file")
      .is_path()
      .flag("--json", options->json, "print the result for programs");
  add_device_options(command, options->device);
  add_host_options(command, options->hosts);
  command
      .examples(
          "  meshplan tune --model tiny-llama --gpus 2 --global-batch 8 --seq-len 128 --out "
          "best.json\n"
          "  meshplan tune --model gpt2-124m --cluster here.json --gpus 2 --global-batch 16 \\\n"
          "      --seq-len 256 --pp 2 --top 4 --most-seconds 300 --folder tune-pp2\n"
          "Without --cluster it calibrates first. Exit code 130: interrupted; what was measured "
          "is\n"
          "kept. An unmeasured plan is never chosen.")
      .on_run([options, command] { return run(*options, command); });
}

}  // namespace meshplan::cli
