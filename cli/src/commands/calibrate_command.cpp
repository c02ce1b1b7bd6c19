// meshplan calibrate: measures this machine and writes a cluster file.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/line.hpp"
#include "core/units.hpp"
#include "options/inputs.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/gzip.hpp"
#include "program/plan/plan_names.hpp"
#include "program/trace/trace_blocks.hpp"
#include "ranks/calibration_jobs.hpp"
#include "ranks/devices.hpp"
#include "ranks/ranks.hpp"
#include "reports/calibration_report.hpp"
#include "reports/catalog_report.hpp"
#include "runtime/launch/launch.hpp"
#include "runtime/measure/calibrate.hpp"
#include "runtime/measure/measure_storage.hpp"
#include "runtime/os/host_info.hpp"
#include "sim/fit/calibration_fit.hpp"
#include "sim/fit/refine.hpp"

namespace meshplan::cli {
namespace {

struct CalibrateOptions {
  std::optional<std::string> out;
  std::optional<std::string> name;
  std::optional<std::string> storage;  // folder of checkpoints
  // Absent until resolve(): what is worth measuring depends on the device.
  std::optional<std::string> model;
  ModelReading reading;
  std::optional<std::int64_t> seq_len;
  std::optional<std::string> precision;  // one or several, with commas
  std::int64_t global_batch = 16;
  std::vector<int> micro_batches;
  std::vector<int> ranks;
  std::optional<int> max_tp;
  double seconds_per_operator = 0.03;
  double operators_s = 150;
  double communication_s = 15;
  std::optional<std::string> samples_out;  // hidden: this process is a measuring rank
  bool operators = false;                  // hidden
  std::optional<std::string> refine;       // traces, separated by commas
  std::optional<std::string> cluster;      // that they correct
  DeviceOptions device;
  Terminal terminal;
  HostOptions hosts;
};

/// Fills in what was not given: a small model on processor cores, one of today's on GPUs.
void resolve(CalibrateOptions& options) {
  const bool on_gpus = choose_device(options.device) == DeviceKind::Cuda;
  options.device.device = on_gpus ? "cuda" : "cpu";
  if (!options.model) options.model = on_gpus ? "llama3.2-1b" : "tiny-llama";
  if (!options.seq_len) options.seq_len = on_gpus ? 4096 : 256;
  if (!options.precision)
    options.precision = name_of(on_gpus ? program::Precision::BF16 : program::Precision::F32);
  if (options.micro_batches.empty())
    options.micro_batches = on_gpus ? std::vector{1, 2} : std::vector{1, 2, 4};
  const std::vector<runtime::HostSlots> hosts = parse_hosts(options.hosts);
  if (options.ranks.empty()) {
    const int cores = static_cast<int>(runtime::detect_host().cores.size());
    const std::optional<int> most = runtime::most_ranks(hosts);
    options.ranks = {most.value_or(on_gpus ? num_gpus() : cores)};
    for (const int ranks : {2, 4})
      if (!on_gpus && ranks > cores && ranks < most.value_or(ranks + 1))
        options.ranks.push_back(ranks);
  }
  for (const int ranks : options.ranks) {
    if (ranks < 1) throw ConfigError(fmt::format("--ranks {}: a job needs at least 1 rank", ranks));
    runtime::require_slots(hosts, ranks);
  }
  // The shard of an operator is timed on one GPU, whether or not the others are there.
  constexpr int kGpusOfAMachine = 8;
  const int most_ranks = *std::ranges::max_element(options.ranks);
  if (!options.max_tp)
    options.max_tp = on_gpus ? std::max(kGpusOfAMachine, most_ranks) : most_ranks;
  if (*options.max_tp < 1)
    throw ConfigError(fmt::format("--max-tp {}: must be at least 1", *options.max_tp));
  if (!(options.operators_s > 0))
    throw ConfigError(
        fmt::format("--operator-seconds {}: must be more than 0", options.operators_s));
}

std::vector<program::Precision> precisions(const CalibrateOptions& options) {
  std::vector<program::Precision> all;
  std::string_view rest = *options.precision;
  while (true) {
    const auto comma = rest.find(',');
    const program::Precision precision = program::parse_precision(rest.substr(0, comma));
    if (precision == program::Precision::F16)
      throw ConfigError("--precision fp16: operators are measured in fp32, bf16 and fp8");
    all.push_back(precision);
    if (comma == std::string_view::npos) return all;
    rest.remove_prefix(comma + 1);
  }
}

// ---------------------------------------------------------------- a measuring rank

std::vector<program::Plan> shapes(const CalibrateOptions& options) {
  std::vector<program::Plan> plans;
  const models::ModelSpec model = load_model(*options.model, options.reading).spec;
  for (const program::Precision precision : precisions(options)) {
    program::Workload workload{.seq_len = *options.seq_len,
                               .global_batch_size = options.global_batch};
    program::set_precision(workload, precision);
    for (program::Plan& plan :
         runtime::shapes_to_measure(model, workload, *options.max_tp, options.micro_batches))
      plans.push_back(std::move(plan));
  }
  return plans;
}

int measure(const CalibrateOptions& options, runtime::Job& job) {
  prepare_process(options.device, job.layout().rank);
  DeviceOptions device_options = options.device;
  device_options.hang_timeout_s = options.hosts.hang_timeout_s / 2;
  RankDevice device(device_options, choose_device(device_options), 1, job);
  const bool on_gpus = device.device().rules().queues;
  const int at_once = on_gpus ? job.world().size()
                              : std::min(job.world().size(),
                                         *std::ranges::max_element(job.layout().cores_of_machine));
  const auto reference = make_reference_product(on_gpus ? DeviceKind::Cuda : DeviceKind::Cpu);
  runtime::CalibrationOptions calibration{
      .operators = {.seconds_per_operator = options.seconds_per_operator,
                    .busy_ranks = at_once,
                    .total_seconds = on_gpus ? options.operators_s : 0,
                    .reference = reference.get()},
      .communication = {.ops = {program::CommOp::AllReduce, program::CommOp::AllGather,
                                program::CommOp::ReduceScatter},
                        .budget_per_case = Seconds{0.1},
                        .total_budget = Seconds{options.communication_s}}};
  if (on_gpus || load_model(*options.model, options.reading).spec.moe)
    calibration.communication.ops.push_back(program::CommOp::AllToAll);
  if (options.operators) calibration.shapes = shapes(options);
  std::optional<Progress> progress;
  if (job.world().rank() == 0) progress.emplace("timing operators", options.terminal);
  const program::CalibrationSamples samples = runtime::calibrate(
      calibration, job.layout(), job.table(), job.world(), device.device(),
      [&](int done, int total) {
        job.board().progress();
        if (progress)
          progress->update(static_cast<std::size_t>(done), static_cast<std::size_t>(total));
      });
  progress.reset();
  if (job.world().rank() == 0) write_file(*options.samples_out, program::to_json(samples));
  return kDone;
}

// ---------------------------------------------------------------- the whole calibration

/// Of the file system that holds the folder, written by one process; 0 without a folder.
double measured_storage_gb_per_s(const std::optional<std::string>& folder) {
  constexpr std::int64_t kBytes = std::int64_t{256} << 20;
  if (!folder) return 0;
  if (!folder_exists(*folder))
    throw ConfigError(fmt::format(
        "--storage {}: no such folder; name the one that checkpoints are saved to", *folder));
  return runtime::measure_storage(*folder, kBytes) / kGigabyte;
}

int calibrate(CalibrateOptions& options, const Command& command) {
  if (!options.out) throw ConfigError("where to? usage: meshplan calibrate --out cluster.json");
  require_writable({options.out});
  load_model(*options.model,
             options.reading);  // a wrong name or type fails here, not in every rank
  precisions(options);
  if (options.name) require_line(*options.name, "--name", limits::kNameBytes);
  const double storage_gb_per_s = measured_storage_gb_per_s(options.storage);
  const CalibrationJobs measured = run_calibration_jobs(
      options.ranks, options.hosts, [&](const std::string& samples_file, bool operators) {
        options.samples_out = samples_file;
        options.operators = operators;
        return command.arguments_of_ranks();
      });
  if (measured.exit_code != kDone) return measured.exit_code;
  const std::vector<program::CalibrationSamples>& jobs = measured.samples;
  sim::Cluster cluster = sim::fit_cluster(jobs);
  if (options.name) cluster.name = *options.name;
  cluster.storage_gb_per_s = storage_gb_per_s;
  write_file(*options.out, sim::to_json(cluster));
  output("{}", reports::cluster_text(cluster));
  std::size_t communications = 0;
  for (const program::CalibrationSamples& job : jobs)
    communications += job.communication.size() + job.links.size();
  output("\n{} operators and {} communications measured -> {}\n", jobs.front().operators.size(),
         communications, *options.out);
  if (!jobs.front().gpus.empty()) output("{}", reports::gpu_text(jobs.front()));
  if (options.storage)
    output("{} takes {:.3g} GB/s written durably by one process\n", *options.storage,
           cluster.storage_gb_per_s);
  output("{}", reports::quietness_text(jobs));
  return kDone;
}

// ---------------------------------------------------------------- refinement

int refine(const CalibrateOptions& options) {
  if (!options.out || !options.cluster)
    throw ConfigError(
        "what is refined, and where to? usage: meshplan calibrate --cluster here.json "
        "--refine a.json,b.json --out refined.json");
  require_writable({options.out});
  std::vector<program::Trace> traces;
  std::istringstream files(*options.refine);
  for (std::string file; std::getline(files, file, ',');)
    traces.push_back(program::parse_trace(unpacked_blocks(file), file));
  const sim::Refinement refined = sim::refine(load_cluster(*options.cluster), traces);
  write_file(*options.out, sim::to_json(refined.cluster));
  output("{} operators and {} collectives corrected by {} trace{} -> {}\n", refined.operators,
         refined.collectives, traces.size(), traces.size() == 1 ? "" : "s", *options.out);
  if (refined.held_out_before)
    output("step time of traces left out: {:.1f} % off before, {:.1f} % after\n",
           100 * *refined.held_out_before, 100 * *refined.held_out_after);
  else
    output("step time of traces left out: not known; it takes at least two\n");
  return kDone;
}

int run(CalibrateOptions& options, const Command& command) {
  if (options.refine) return refine(options);
  resolve(options);
  if (options.samples_out)
    return as_rank(options.hosts, [&](runtime::Job& job) { return measure(options, job); });
  return calibrate(options, command);
}

}  // namespace

void add_calibrate_command(CommandLine& line) {
  const auto options = std::make_shared<CalibrateOptions>();
  options->terminal = line.terminal();
  Command command = line.add("calibrate", "Measure this machine and write it as a cluster file");
  command.option("-o,--out", options->out, "cluster file to write")
      .is_path()
      .of_launcher()
      .option("--name", options->name, "of the cluster; default: the host's name")
      .of_launcher()
      .option("--storage", options->storage,
              "folder of checkpoints: write 256 MiB there three times, from this host alone")
      .is_path()
      .of_launcher()
      .option("--model", options->model,
              "whose operator shapes are measured; default: tiny-llama, on GPUs llama3.2-1b")
      .suggests(models::preset_names())
      .takes_file()
      .option("--seq-len", options->seq_len, "tokens of a sequence; default: 256, on GPUs 4096")
      .option("--global-batch", options->global_batch, "largest micro-batch worth measuring")
      .option("--precision", options->precision,
              "fp32, bf16 or fp8, or several: fp32,bf16; default: fp32, on GPUs bf16")
      .option("--micro-batches", options->micro_batches,
              "sequences of a micro-batch, several; default: 1,2,4, on GPUs 1,2")
      .option(
          "--ranks", options->ranks,
          "jobs to measure communication with; the first also times operators. Default: one "
          "rank per core, then 4 if there are fewer cores; on GPUs one rank per GPU; or as many "
          "as --hosts says")
      .option("--max-tp", options->max_tp,
              "largest tp whose shards are measured; default: the most ranks, on GPUs at least 8")
      .option("--seconds-per-operator", options->seconds_per_operator,
              "of repeats, for each condition")
      .option("--operator-seconds", options->operators_s,
              "on GPUs, for all operators: with many of them each gets less")
      .option("--communication-seconds", options->communication_s, "for each job")
      .option(
          "--refine", options->refine,
          "traces of runs (meshplan run --trace), separated by commas: correct --cluster by them")
      .of_launcher()
      .option("--cluster", options->cluster, "that --refine corrects")
      .is_path()
      .of_launcher()
      .option("--samples-out", options->samples_out, "(a measuring rank: where raw samples go)")
      .is_path()
      .flag("--operators", options->operators, "(a measuring rank: time operators too)");
  add_model_reading(command, options->reading);
  add_device_options(command, options->device);
  add_host_options(command, options->hosts);
  command
      .examples(
          "  meshplan calibrate --out here.json\n"
          "  meshplan calibrate --out here.json --model gpt2-124m --seq-len 64 --micro-batches 4\n"
          "  meshplan calibrate --out gpus.json --device cuda --precision fp32,bf16\n"
          "  meshplan calibrate --cluster here.json --refine a.json,b.json --out refined.json\n"
          "It times operators and communication by themselves and never a plan.")
      .on_run([options, command] { return run(*options, command); });
}

}  // namespace meshplan::cli
