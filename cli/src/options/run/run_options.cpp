#include "options/run/run_options.hpp"

#include <fmt/format.h>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "options/inputs.hpp"
#include "options/run/run_start.hpp"
#include "options/whole_run/failure_options.hpp"
#include "output/kineto_folder.hpp"
#include "runtime/train/kept_settings.hpp"

namespace meshplan::cli {

namespace {

/// --checkpoint-every and --mtbf.
void check_interval(const RunOptions& options) {
  saving_intervals(options.saving, options.mtbf);
  if (options.mtbf) mtbf_hours(*options.mtbf);
  if (options.mtbf && !options.saving.is_auto())
    throw ConfigError("--mtbf: is for --checkpoint-every auto; add it, or leave --mtbf out");
}

/// Options that would say nothing.
void check_elastic(const RunOptions& options) {
  const ElasticOptions& elastic = options.elastic;
  if (!elastic.range)
    for (const auto& [option, given] : {std::pair("--spares", elastic.spares.has_value()),
                                        {"--replace-slow-ranks", elastic.replace_slow_ranks}})
      if (given)
        throw ConfigError(
            fmt::format("{}: is for --elastic; add it, or leave {} out", option, option));
  if (!elastic.replace_slow_ranks) return;
  for (const auto& [option, is_zero] :
       {std::pair("--warn-slow-rank", options.train.watch.slow_rank == 0),
        {"--time-every", options.time_every == 0}})
    if (is_zero)
      throw ConfigError(fmt::format(
          "{} 0: finds no slow rank for --replace-slow-ranks; leave one of them out", option));
}

}  // namespace

void apply_interval(RunOptions& options) {
  const planner::SavingIntervals intervals = saving_intervals(options.saving, options.mtbf);
  runtime::CheckpointOptions& checkpoints = options.train.checkpoints;
  checkpoints.every = intervals.checkpoint_every;
  checkpoints.memory.every = intervals.memory_every;
  if (intervals.device_mtbf_hours)
    checkpoints.device_mtbf_s = *intervals.device_mtbf_hours * planner::kHourSeconds;
}

void check(const RunOptions& options) {
  check_interval(options);
  check_elastic(options);
  const runtime::LossScaling& scaling = options.train.loss_scaling;
  const auto require = [](const char* option, double value, bool holds, const char* rule) {
    if (!holds) throw ConfigError(fmt::format("{} {}: must be {}", option, value, rule));
  };
  require("--loss-scale", scaling.initial, scaling.initial >= 1 && scaling.initial <= 0x1p96,
          "from 1 to 2^96");
  require("--loss-scale-backoff", scaling.backoff, scaling.backoff > 0 && scaling.backoff < 1,
          "between 0 and 1");
}

void add_run_options(Command& command, RunOptions& options) {
  command.positional("plan", options.file, "plan file")
      .is_path()
      .option("-n,--gpus,--ranks", options.ranks,
              "ranks to run on; a plan for another number is made again for these, with the same "
              "model, batch, sequence length and precision")
      .at_least(1)
      .option(
          "--steps", options.steps,
          "optimizer steps of the whole run; default: those of the run that is resumed, else 20")
      .at_least(1)
      .option("--data", options.train.data_path,
              "text (a byte a token) or token ids (*.u16, *.u32); default: the text of the GPL")
      .is_path()
      .option("--seed", options.seed,
              "of the initial weights and the order of the data; default: 1")
      .option("--freeze", options.freeze, kFreezeHelp);
  add_adapter_options(command, options.adapters);
  command
      .option("--eval-every", options.train.evaluate_every,
              "steps between evaluations on held-out text; 0 = never")
      .at_least(0);
  add_optimizer_options(command, options.optimizer_settings, OptimizerDefaults::OfPlan);
  command.group("Loss scaling, of plans in fp16 (docs/watching.md)")
      .option("--loss-scale", options.train.loss_scaling.initial, "at the start")
      .option("--loss-scale-growth", options.train.loss_scaling.growth,
              "its factor after an interval without an overflow")
      .at_least(1)
      .option("--loss-scale-backoff", options.train.loss_scaling.backoff,
              "its factor after an overflow, whose step updates nothing")
      .option("--loss-scale-interval", options.train.loss_scaling.growth_interval,
              "steps of an interval")
      .at_least(1);
  add_device_options(command, options.device);
  command
      .option("--gemm-cache", options.device.gemm_cache,
              "folder that keeps which kernel of a GPU's matrix products is fastest; what it "
              "lacks is timed before the first step")
      .is_path();
  add_host_options(command, options.hosts);
  command.flag("--progress-thread", options.progress_thread,
               "a thread of each rank moves communications while it computes, whatever the plan "
               "says; uses spare cores");
  command.flag("--any-placement", options.any_placement,
               "run even if the machines are not those of the plan's cluster");
  command.group("Checkpoints (docs/checkpoints.md)")
      .option("--checkpoint-dir", options.checkpoint_dir,
              "folder to save to; default: checkpoints, where --checkpoint-every asks for some")
      .is_path();
  add_saving_options(command, options.saving);
  command.option("--mtbf", options.mtbf, std::string(kMtbfHelp) + "; for --checkpoint-every auto")
      .option("--keep", options.train.checkpoints.keep, "newest checkpoints to keep; 0 = all")
      .at_least(0)
      .option(
          "--resume", options.resume,
          "continue a run: latest, a checkpoint, or a folder of them; latest-if-any starts a new "
          "one where there is none, so that one command starts and restarts a job; both take "
          "what is in the nodes' memory if that is newer")
      .is_path()
      .suggests({kLatest, kLatestIfAny})
      .option("--change", options.change,
              "settings that may differ from those of the resumed run, with commas between them: "
              "learning_rate,decay_steps,precision ...")
      .suggests(runtime::changeable_settings())
      .option("--init-from", options.init_from,
              "start a new run from the weights of a checkpoint or a Hugging Face model")
      .is_path()
      .option("--assume", options.train.checkpoints.assume,
              "read that model's config.json as if it were of this model_type, as the plan did");
  add_elastic_options(command, options.elastic);
  command.group("Watching it (docs/watching.md)")
      .option("--log", options.log, "write a line of JSON per step to this file; --resume appends")
      .is_path()
      .option("--time-every", options.time_every,
              "steps from one whose operations are timed to the next; 0 = none; default: 1 on "
              "CPUs; on GPUs, which replay no captured work in a timed step, 0, or 10 with "
              "--replace-slow-ranks")
      .at_least(0)
      .option("--verify", options.train.verify_every,
              "steps between comparisons of what several ranks hold, bit for bit; 0 = never")
      .at_least(0)
      .flag("--no-verify-start", options.no_verify_start,
            "do not compare what several ranks hold before the first step")
      .option("--warn-loss-spike", options.train.watch.loss_spike,
              "standard deviations above the last losses that are worth a warning; 0 = never")
      .at_least(0)
      .option("--warn-slow-rank", options.train.watch.slow_rank,
              "warn about a rank that computes so many times as long as its peers; 0 = never")
      .at_least(0);
  command.group("What it writes")
      .option("--trace", options.trace, "write the measured trace (meshplan's schema)")
      .is_path()
      .option("--chrome", options.chrome, "write it for chrome://tracing or ui.perfetto.dev")
      .is_path()
      .option("--kineto", options.kineto, kKinetoHelp)
      .is_path()
      .option("--traced-steps", options.traced_steps,
              "steps to trace after the timed ones; default: 3 with --trace, --chrome or --kineto")
      .at_least(0)
      .flag("--json", options.json, "print the result for programs")
      .flag("--quiet", options.quiet, "print nothing; for use with --trace");
}

}  // namespace meshplan::cli
