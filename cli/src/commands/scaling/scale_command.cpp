// meshplan scale: how much faster more devices are, where that ends, and why.
#include <algorithm>
#include <fmt/format.h>

#include "commands/scaling/scaling_commands.hpp"
#include "core/error.hpp"
#include "core/limits.hpp"
#include "options/foreign.hpp"
#include "options/inputs.hpp"
#include "options/plan_input.hpp"
#include "output/output.hpp"
#include "output/progress.hpp"
#include "planner/objectives/sweeps.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/threads.hpp"
#include "reports/scaling/scaling_report.hpp"
#include "requests/plan_request.hpp"
#if MESHPLAN_HAS_RUNTIME
#include "ranks/run_sizes.hpp"
#include "runtime/train/preflight.hpp"
#endif

namespace meshplan::cli {
namespace {

struct ScaleOptions {
  std::optional<std::string> file;
  PlanRequest request;
  std::optional<planner::ScaledAxis> axis;
  bool strong = false;
  bool weak = false;
  std::optional<int> from, to;
  double efficiency_percent = 80;
  std::optional<bool> iso_efficiency;
  std::optional<std::string> measured;
#if MESHPLAN_HAS_RUNTIME
  bool run = false;
  RunSizes how{.data = runtime::kDefaultText};
#endif
  std::optional<std::string> out;
  std::optional<std::string> csv;
  bool json = false;
  bool schema = false;
};

struct Measured {
  std::vector<planner::MeasuredSize> runs;
  std::string file;
};

std::optional<Measured> read_measured(const ScaleOptions& options) {
  if (!options.measured) return std::nullopt;
  return Measured{planner::parse_measured_runs(read_file(*options.measured), *options.measured),
                  *options.measured};
}

/// From the first size, doubled up to the last; and all that were measured.
/// @param ranks  of the plan or the cluster: the first size, unless --from says another
std::vector<int> sizes(const ScaleOptions& options, int ranks,
                       const std::optional<Measured>& measured) {
  constexpr int kTimes = 16;
  const int from = options.from.value_or(ranks);
  const int most =
      static_cast<int>(std::min<std::int64_t>(std::int64_t{kTimes} * from, limits::kRanks));
  const int to = options.to.value_or(most);
  if (to < from)
    throw ConfigError(
        fmt::format("--to {}: less than the first size, which is {}; nearest: {} (or say --from)",
                    to, from, from));
  std::vector<int> counts = planner::device_counts(from, to);
  if (measured)
    for (const int size : planner::sizes_of(measured->runs)) counts.push_back(size);
  std::ranges::sort(counts);
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

planner::ScalingRequest scaling_request(const ScaleOptions& options, std::vector<int> devices) {
  if (options.strong && options.weak)
    throw ConfigError("--strong and --weak: one of them; strong is the default");
  return {.mode = options.weak ? planner::ScalingMode::Weak : planner::ScalingMode::Strong,
          .devices = std::move(devices),
          .least_efficiency = options.efficiency_percent / 100,
          .iso_efficiency = options.iso_efficiency.value_or(options.axis.has_value())};
}

sim::Cluster cluster_of_first(const sim::Cluster& cluster, const planner::ScalingCurve& curve) {
  return curve.first ? sim::with_ranks(cluster, curve.points[*curve.first].devices) : cluster;
}

/// One plan, of a file or of flags, along an axis.
reports::ScalingReport scale_one(const ScaleOptions& options,
                                 const std::optional<Measured>& measured,
                                 const Terminal& terminal) {
  const PlanOnCluster input = options.file ? plan_of_file(*options.file, options.request.plan)
                                           : plan_of_flags(options.request.plan);
  if (!options.json) output("{}", origin_text(input));
  const planner::ScalingRequest request =
      scaling_request(options, sizes(options, input.plan.parallel.world_size(), measured));
  const ElapsedTime elapsed("simulating", terminal);
  planner::ScalingCurve curve = planner::scale_plan(input.plan, *options.axis, input.cluster,
                                                    request, on_threads(options.request.threads));
  sim::Cluster cluster = cluster_of_first(input.cluster, curve);
  return {.generator = {},
          .cluster = std::move(cluster),
          .curve = std::move(curve),
          .measured = {},
          .measured_source = {}};
}

/// The best plan of each size.
reports::ScalingReport scale_best(const ScaleOptions& options,
                                  const std::optional<Measured>& measured,
                                  const Terminal& terminal) {
  ResolvedRequest resolved = resolve(options.request);
  const planner::ScalingRequest request =
      scaling_request(options, sizes(options, resolved.request.cluster.num_ranks(), measured));
  if (!options.json)
    for (const std::string& assumption : resolved.assumptions) output("assumed  {}\n", assumption);
  const auto progress = [&](int devices) {
    if (!terminal.silent) output(stderr, "scale: {} devices\n", devices);
  };
  planner::ScalingCurve curve = planner::scale_search(
      resolved.request, request, on_threads(options.request.threads), progress);
  sim::Cluster cluster = cluster_of_first(resolved.request.cluster, curve);
  return {.generator = {},
          .cluster = std::move(cluster),
          .curve = std::move(curve),
          .measured = {},
          .measured_source = {}};
}

void lay_beside(const std::vector<planner::MeasuredSize>& runs, const std::string& source,
                reports::ScalingReport& report) {
  report.measured = planner::beside(report.curve, runs, source);
  report.measured_source = source;
}

#if MESHPLAN_HAS_RUNTIME
void add_run_flags(Command& command, ScaleOptions& options) {
  command.group("Running it here")
      .flag("--run", options.run,
            "run the sizes that this machine can, on its processors, in turns; beyond its cores "
            "ranks take turns")
      .option("--data", options.how.data, "text or token file")
      .is_path()
      .option("--steps", options.how.steps, "of a size in a round; the first is warm-up")
      .between(2, 1000)
      .option("--rounds", options.how.rounds, "in which all sizes take turns")
      .between(1, 100);
  add_host_options(command, options.how.hosts);
}
#endif

void require_something_to_scale(const ScaleOptions& options) {
#if MESHPLAN_HAS_RUNTIME
  if (options.run && options.measured) throw ConfigError("--run and --measured: one of them");
#endif
  if (options.file && !options.axis)
    throw ConfigError(fmt::format(
        "{}: along which axis? --axis dp, tp, pp, cp or ep (without a plan each size is the best "
        "plan of a search)",
        *options.file));
  if (!options.file && !options.request.plan.model)
    throw ConfigError(
        "scale needs a plan and an axis, or a model: meshplan scale plan.json --axis dp --to 512, "
        "or meshplan scale --model llama3-8b --cluster dgx-h100 --global-batch 512 --to 512");
}

int run(const ScaleOptions& options, const Terminal& terminal) {
  if (options.schema) {
    output("{}", reports::scaling_schema());
    return kDone;
  }
  require_something_to_scale(options);
  require_writable({options.out, options.csv});
  const std::optional<Measured> measured = read_measured(options);
  reports::ScalingReport report = options.axis ? scale_one(options, measured, terminal)
                                               : scale_best(options, measured, terminal);
  report.generator = "meshplan " + program_version();
  if (measured) lay_beside(measured->runs, measured->file, report);
#if MESHPLAN_HAS_RUNTIME
  if (options.run)
    lay_beside(run_sizes(options.how, report.curve, report.cluster, terminal), source_of_sizes(),
               report);
#endif
  if (options.out) write_file(*options.out, reports::to_html(report));
  if (options.csv) write_file(*options.csv, reports::to_csv(report));
  output("{}", options.json ? reports::to_json(report) : reports::to_text(report));
  return std::ranges::any_of(report.curve.points, &planner::ScalingPoint::fits) ? kDone
                                                                                : kInfeasible;
}

}  // namespace

void add_scale_command(CommandLine& line) {
  const auto options = std::make_shared<ScaleOptions>();
  Command command =
      line.add("scale", "Say how much faster more devices are, where that ends, and why");
  command
      .positional(
          "plan", options->file,
          "plan file, or another stack's configuration; or describe the plan with the flags "
          "below")
      .is_path()
      .takes_json();
  command.group("What to scale")
      .choice("--axis", options->axis,
              "axis that gets more devices; ep takes dp along. Without it each size is the best "
              "plan of a search")
      .flag("--strong", options->strong, "the work of a step stays as it is (the default)")
      .flag("--weak", options->weak,
            "the work grows with the devices: the global batch, along cp the sequence length")
      .option("--from", options->from,
              "devices of the first size; default: the plan's, or one node's")
      .between(1, static_cast<double>(limits::kRanks))
      .option("--to", options->to, "of the last; default: 16 times as many. Between, each doubles")
      .between(1, static_cast<double>(limits::kRanks))
      .option("--efficiency", options->efficiency_percent,
              "percent of the first size's efficiency that the knee, and iso-efficiency, keep")
      .between(1, 100)
      .on_off("iso-efficiency", options->iso_efficiency,
              "find the batch that keeps the efficiency at each size; default: along an axis")
      .option("--measured", options->measured,
              "table (CSV) of measured steps: devices, and step_time_s or tokens_per_s")
      .is_path()
      .group("What it writes")
      .option("-o,--out", options->out, "write a page for a browser to this file")
      .is_path()
      .option("--csv", options->csv, "write a row for each size")
      .is_path()
      .flag("--json", options->json, "print the result for programs")
      .flag("--schema", options->schema, "print the JSON Schema of that");
  add_plan_request(command, options->request);
#if MESHPLAN_HAS_RUNTIME
  add_run_flags(command, *options);
#endif
  command
      .examples(
          "  meshplan scale plan.json --axis dp --to 512\n"
          "  meshplan scale plan.json --axis cp --weak --to 64 --out scaling.html\n"
          "  meshplan scale --model llama3-8b --cluster dgx-h100 --tp 4 --sp --global-batch 512 "
          "\\\n"
          "      --axis dp --to 512 --measured points.csv\n"
          "  meshplan scale --model llama3-70b --cluster dgx-h100 --global-batch 1024 \\\n"
          "      --from 64 --to 2048\n"
          "Exit code 3: no size fits into memory (the report is printed all the same).")
      .on_run([options, command, terminal = line.terminal()] {
        if (options->file)
          refuse_beside_file(command, input_name(*options->file, "plan"),
                             is_foreign(*options->file, options->request.plan.foreign));
        return run(*options, terminal);
      });
}

}  // namespace meshplan::cli
