// meshplan adjust: what measured runs say of others of their model, software and cluster.
#include "commands/anchors/adjust_command.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "options/foreign.hpp"
#include "options/inputs.hpp"
#include "options/plan_input.hpp"
#include "output/other_unit.hpp"
#include "output/output.hpp"
#include "planner/runs/training_log.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/gzip.hpp"
#include "process/threads.hpp"
#include "reports/adjustment_report.hpp"
#include "reports/comparison.hpp"
#include "requests/validate_request.hpp"
#include "sim/anchors/adjustment.hpp"
#include "sim/prices/fitted_constants.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::cli {
namespace {

struct AdjustOptions {
  std::optional<std::string> plan_file;
  std::optional<std::string> log;
  std::optional<double> step_time_s;
  std::optional<std::string> runs;
  std::optional<std::string> releases;
  std::optional<std::string> beside;
  PlanOptions plan;
  std::optional<std::string> out;
  bool json = false;
};

/// Anchors and what they have in common.
struct AnchorsOfOneKind {
  std::optional<sim::AnchoredTo> of;
  std::string first;  // where the first was read
  std::vector<sim::Anchor> anchors;

  /// @throws ConfigError for one of another kind than the first
  void add(const sim::AnchoredTo& kind, sim::Anchor anchor, const std::string& where) {
    if (!of) {
      of = kind;
      first = where;
    }
    for (const auto& [name, member] : {std::pair{"cluster", &sim::AnchoredTo::cluster},
                                       {"software", &sim::AnchoredTo::software},
                                       {"model", &sim::AnchoredTo::model},
                                       {"precision", &sim::AnchoredTo::precision}})
      if (kind.*member != (*of).*member)
        throw ConfigError(fmt::format(
            "{}: {} is '{}', but that of {} is '{}'; runs say something of others of one cluster, "
            "software, release, model and precision: one file for each",
            where, name, kind.*member, first, (*of).*member));
    anchors.push_back(std::move(anchor));
  }
};

sim::Anchor anchor_of(const sim::RunPrediction& prediction, const sim::TrainingRun& run,
                      double measured_s, std::string source) {
  return {.errors = sim::errors_of(prediction, run),
          .source = std::move(source),
          .measured_s = measured_s,
          .predicted_s = prediction.step_time_s};
}

void add_earlier(const AdjustOptions& options, AnchorsOfOneKind& kind) {
  const auto earlier = load_adjustment(options.beside);
  if (!earlier) return;
  for (const sim::Anchor& anchor : earlier->anchors())
    kind.add(earlier->of(), anchor, *options.beside);
}

/// Rows of a table without a step time are no anchors.
void add_table(const AdjustOptions& options, AnchorsOfOneKind& kind) {
  const sim::ForEach each = for_each_on(on_threads(0));
  const sim::PreparedTable table = load_table(
      {.table = options.runs, .releases = options.releases, .constants = {}, .users_own = true},
      each);
  const std::vector<sim::RowPrediction> predictions = table.predict(sim::fitted_constants(), each);
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    const sim::PublishedRow& row = table.rows()[i];
    const std::string where = fmt::format("{}: {}", *options.runs, row.id);
    if (!predictions[i].prediction)
      throw ConfigError(fmt::format("{}: {}", where, predictions[i].note));
    if (!row.step_time_s)
      throw ConfigError(
          fmt::format("{}: step_time_s: is empty; expected what was measured", where));
    if (!predictions[i].note.empty()) output(stderr, "{}: {}\n", where, predictions[i].note);
    kind.add(sim::anchored_to(*table.run(i)),
             anchor_of(*predictions[i].prediction, *table.run(i), *row.step_time_s, where), where);
  }
}

/// A measured step time, and where it is from.
struct MeasuredStep {
  double seconds = 0;
  std::string source;
};

MeasuredStep measured_step(const AdjustOptions& options, const program::Plan& plan) {
  if (options.step_time_s) {
    if (!(*options.step_time_s > 0 && *options.step_time_s <= limits::kSeconds))
      throw ConfigError(fmt::format("--step-time {}: expected seconds, above 0 and up to {:g}",
                                    *options.step_time_s, limits::kSeconds));
    return {.seconds = *options.step_time_s,
            .source = fmt::format("--step-time {:g}", *options.step_time_s)};
  }
  planner::LoggedRun logged =
      planner::parse_training_log(unpacked_blocks(*options.log), *options.log, plan);
  program::Trace trace;
  trace.measured = true;
  trace.step_times_s = std::move(logged.step_times_s);
  const reports::StepTimes times = reports::step_times(trace);
  return {.seconds = times.median_s,
          .source = fmt::format("{}: median of {} step{} after {} of warm-up ({})", *options.log,
                                times.steps, times.steps == 1 ? "" : "s", times.warmup_steps,
                                logged.format)};
}

void add_plan(const AdjustOptions& options, AnchorsOfOneKind& kind) {
  const PlanOnCluster loaded = plan_of_file(*options.plan_file, options.plan);
  for (const std::string& note : loaded.notes) output(stderr, "{}\n", printable_line(note));
  if (loaded.of_own_software())
    throw ConfigError(fmt::format(
        "{}: plans of software '{}' are priced operation by operation and cannot be adjusted by "
        "measured steps: measure their operations (meshplan calibrate), or name the software that "
        "ran, for example --software megatron-core",
        *options.plan_file, loaded.plan.stack.software));
  const MeasuredStep step = measured_step(options, loaded.plan);
  const sim::PreparedRun run(sim::run_of(loaded.plan, loaded.cluster.name),
                             sim::data_sheet_of(loaded.cluster));
  const sim::RunPrediction prediction = run.predict(sim::constants_of(sim::fitted_constants()),
                                                    sim::sigmas_of(sim::fitted_constants()));
  if (options.step_time_s) note_other_unit(*options.step_time_s, prediction.step_time_s);
  kind.add(sim::anchored_to(run.run()), anchor_of(prediction, run.run(), step.seconds, step.source),
           *options.plan_file);
}

/// @throws ConfigError unless a table is given, or a configuration with what was measured of it
void require_measured_run(const AdjustOptions& options) {
  const int measurements = (options.log ? 1 : 0) + (options.step_time_s ? 1 : 0);
  if (options.runs && (options.plan_file || measurements > 0))
    throw ConfigError(
        "--runs: the table's rows say their configuration and step time; leave out the plan, its "
        "log and --step-time");
  if (options.releases && !options.runs)
    throw ConfigError(
        "--releases: names releases of the rows of --runs; for a plan write --software "
        "NAME@RELEASE");
  if (!options.runs && (!options.plan_file || measurements != 1))
    throw ConfigError(
        "adjust needs a measured run: meshplan adjust plan.json train.log, adjust run.sh train.log "
        "--cluster dgx-h100, adjust plan.json --step-time 14.66, or adjust --runs runs.csv");
}

int run(const AdjustOptions& options) {
  require_measured_run(options);
  require_writable({options.out});
  AnchorsOfOneKind kind;
  add_earlier(options, kind);
  if (options.runs)
    add_table(options, kind);
  else
    add_plan(options, kind);
  if (!kind.of) throw ConfigError(fmt::format("{}: has no row", *options.runs));
  const sim::Adjustment adjustment(*kind.of, std::move(kind.anchors));
  if (options.out) write_file(*options.out, sim::to_json(adjustment));
  if (options.json) {
    output("{}", sim::to_json(adjustment));
    return kDone;
  }
  output("{}", reports::to_text(adjustment));
  if (options.out)
    output("\nnext\n  meshplan simulate plan.json --software {} --adjusted {}\n",
           adjustment.of().software, *options.out);
  else
    output("\nnext\n  repeat with --out adjusted.json to keep this\n");
  return kDone;
}

}  // namespace

void add_adjust_command(CommandLine& line) {
  const auto options = std::make_shared<AdjustOptions>();
  Command command =
      line.add("adjust", "Correct predictions of a software's runs by runs that were measured");
  command
      .positional(
          "plan", options->plan_file,
          "the configuration that was measured: a plan, or another stack's launch script or "
          "configuration")
      .is_path()
      .positional("log", options->log,
                  "its training log: of Megatron-LM, torchtitan, nanotron or DeepSpeed")
      .is_path()
      .option("--step-time", options->step_time_s, "its step time in seconds, instead of a log")
      .option("--runs", options->runs,
              "instead: measured runs, CSV, one a line, as meshplan validate --table reads them")
      .is_path()
      .option("--releases", options->releases, "releases of the software of --runs, CSV")
      .is_path()
      .option("--beside", options->beside, "add to the runs of this earlier file of adjust")
      .is_path()
      .takes_json();
  add_cluster_options(command, options->plan);
  add_foreign_plan_options(command, options->plan);
  command
      .option("-o,--out", options->out,
              "write the adjustment to this file, for --adjusted of simulate, plan and validate")
      .is_path()
      .flag("--json", options->json, "print that file instead of the tables")
      .examples(
          "  meshplan adjust run.sh train.log --cluster dgx-h100 --out adjusted.json\n"
          "  meshplan adjust plan.json --software megatron-core --step-time 14.66 --out "
          "adjusted.json\n"
          "  meshplan adjust other.sh other.log --cluster dgx-h100 --beside adjusted.json --out "
          "both.json\n"
          "  meshplan adjust --runs runs.csv --out adjusted.json\n"
          "  meshplan simulate plan.json --software megatron-core --adjusted adjusted.json\n"
          "A run says most of others whose layers do the same on a device: the same tp, cp, ep,\n"
          "micro-batch, sequence and recompute. The first steps of a log, up to a fifth, are "
          "warm-up.")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
