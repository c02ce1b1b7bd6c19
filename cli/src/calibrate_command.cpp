// meshplan calibrate: measures this machine and writes a cluster file.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands.hpp"
#include "core/error.hpp"
#include "exit_codes.hpp"
#include "files.hpp"
#include "inputs.hpp"
#include "kernels/cpu_backend.hpp"
#include "progress.hpp"
#include "ranks.hpp"
#include "reports/catalog_report.hpp"
#include "runtime/calibrate.hpp"
#include "runtime/host_info.hpp"
#include "sim/calibration_fit.hpp"
#include "temporary_folder.hpp"

namespace meshplan::cli {
namespace {

struct Options {
  std::optional<std::string> out;
  std::optional<std::string> name;
  std::string model = "tiny-llama";
  std::int64_t seq_len = 256;
  std::int64_t global_batch = 16;
  std::string precision = "fp32";
  std::vector<int> micro_batches = {1, 2, 4};
  std::vector<int> ranks;
  double seconds_per_operator = 0.03;
  double communication_s = 15;
  std::optional<std::string> samples_out;  // hidden: this process is a measuring rank
  bool operators = false;                  // hidden
  Terminal terminal;
  HostOptions hosts;
};

std::string joined(const std::vector<int>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

// ---------------------------------------------------------------- a measuring rank

int measure(const Options& options, runtime::Job& job) {
  runtime::CalibrationOptions calibration{
      .operators = {.seconds_per_operator = options.seconds_per_operator,
                    .busy_ranks = std::min(job.world().size(), *std::ranges::max_element(
                                                                   job.layout().cores_of_machine))},
      .communication = {.ops = {program::CommOp::AllReduce, program::CommOp::AllGather,
                                program::CommOp::ReduceScatter},
                        .budget_per_case = Seconds{0.1},
                        .total_budget = Seconds{options.communication_s}}};
  if (options.operators) {
    program::Workload workload{.seq_len = options.seq_len,
                               .global_batch_size = options.global_batch};
    workload.precision = parse_dtype(options.precision);
    const int most_ranks = *std::ranges::max_element(options.ranks);
    calibration.shapes = runtime::shapes_to_measure(load_model(options.model).spec, workload,
                                                    most_ranks, options.micro_batches);
  }
  const auto backend = kernels::make_cpu_backend(1);
  std::optional<Progress> progress;
  if (job.world().rank() == 0) progress.emplace("timing operators", options.terminal);
  const program::CalibrationSamples samples = runtime::calibrate(
      calibration, job.layout(), job.table(), job.world(), *backend, [&](int done, int total) {
        job.board().progress();
        if (progress)
          progress->update(static_cast<std::size_t>(done), static_cast<std::size_t>(total));
      });
  progress.reset();
  if (job.world().rank() == 0) write_file(*options.samples_out, program::to_json(samples));
  return kDone;
}

// ---------------------------------------------------------------- the whole calibration

int calibrate(const Options& options) {
  if (!options.out) throw ConfigError("where to? usage: meshplan calibrate --out cluster.json");
  require_writable({options.out});
  load_model(options.model);  // a wrong name fails here, not in every rank
  const TemporaryFolder folder;
  std::vector<program::CalibrationSamples> jobs;
  for (std::size_t i = 0; i < options.ranks.size(); ++i) {
    const int ranks = options.ranks[i];
    const std::string file = folder.file(fmt::format("samples-{}.json", ranks));
    fmt::print(stderr, "measuring {} with {} rank{}\n",
               i == 0 ? "operators and communication" : "communication", ranks,
               ranks == 1 ? "" : "s");
    std::vector<std::string> arguments = {"calibrate",
                                          "--samples-out",
                                          file,
                                          "--model",
                                          options.model,
                                          "--seq-len",
                                          std::to_string(options.seq_len),
                                          "--global-batch",
                                          std::to_string(options.global_batch),
                                          "--precision",
                                          options.precision,
                                          "--micro-batches",
                                          joined(options.micro_batches),
                                          "--ranks",
                                          joined(options.ranks),
                                          "--seconds-per-operator",
                                          fmt::format("{}", options.seconds_per_operator),
                                          "--communication-seconds",
                                          fmt::format("{}", options.communication_s),
                                          "--hang-timeout",
                                          fmt::format("{}", options.hosts.hang_timeout_s)};
    if (i == 0) arguments.emplace_back("--operators");
    const int code = launch_self(ranks, options.hosts, std::move(arguments));
    if (code != kDone) return code;
    jobs.push_back(program::parse_samples(read_file(file), file));
  }
  sim::Cluster cluster = sim::fit_cluster(jobs);
  if (options.name) cluster.name = *options.name;
  write_file(*options.out, sim::to_json(cluster));
  fmt::print("{}", reports::cluster_text(cluster));
  std::size_t communications = 0;
  for (const program::CalibrationSamples& job : jobs)
    communications += job.communication.size() + job.links.size();
  fmt::print("\n{} operators and {} communications measured -> {}\n", jobs.front().operators.size(),
             communications, *options.out);
  return kDone;
}

int run(Options options) {
  const auto cores = static_cast<int>(runtime::detect_host().cores.size());
  if (options.ranks.empty()) {
    options.ranks = {cores};
    for (const int ranks : {2, 4})
      if (ranks > cores) options.ranks.push_back(ranks);
  }
  for (const int ranks : options.ranks)
    if (ranks < 1) throw ConfigError(fmt::format("--ranks {}: a job needs at least 1 rank", ranks));
  if (options.samples_out)
    return as_rank(options.hosts, [&](runtime::Job& job) { return measure(options, job); });
  return calibrate(options);
}

}  // namespace

void add_calibrate_command(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  options->terminal = line.terminal();
  Command command = line.add("calibrate", "Measure this machine and write it as a cluster file");
  command.option("-o,--out", options->out, "cluster file to write")
      .option("--name", options->name, "of the cluster; default: the host's name")
      .option("--model", options->model, "whose operator shapes are measured")
      .option("--seq-len", options->seq_len, "tokens of a sequence")
      .option("--global-batch", options->global_batch, "largest micro-batch worth measuring")
      .option("--precision", options->precision, "fp32 or bf16")
      .option("--micro-batches", options->micro_batches, "sequences of a micro-batch, several")
      .option("--ranks", options->ranks,
              "jobs to measure communication with; the first also times operators. Default: one "
              "rank per core, then "
              "4 if there are fewer cores")
      .option("--seconds-per-operator", options->seconds_per_operator,
              "of repeats, for each condition")
      .option("--communication-seconds", options->communication_s, "for each job")
      .option("--samples-out", options->samples_out, "(a measuring rank: where raw samples go)")
      .flag("--operators", options->operators, "(a measuring rank: time operators too)");
  add_host_options(command, options->hosts);
  command
      .examples(
          "  meshplan calibrate --out here.json\n"
          "  meshplan calibrate --out here.json --model gpt2-124m --seq-len 64 --micro-batches 4\n"
          "It times operators and communication by themselves and never runs a plan.")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
