#include "runtime/train/train.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <sstream>

#include "bind/gradient_scale.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/index.hpp"
#include "core/statistics.hpp"
#include "runtime/data/data.hpp"
#include "runtime/guard/status_board.hpp"
#include "runtime/os/host_info.hpp"
#include "train/finite_check.hpp"
#include "train/learning_rate.hpp"
#include "train/product_choices.hpp"
#include "train/run_checkpoints.hpp"
#include "train/step_watch.hpp"
#include "train/trainer.hpp"
#include "train/verify.hpp"

namespace meshplan::runtime {
namespace {

/// A line "Name:  123 kB" of /proc/self/status, in bytes; 0 if it is not there.
double status_field(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream rest(line.substr(name.size()));
    double kib = 0;
    rest >> kib;
    return kib * 1024.0;
  }
  return 0;
}

/// Processes with equal keys read one monotonic clock: they run under the same kernel.
std::int64_t clock_key() {
  std::ifstream boot_id("/proc/sys/kernel/random/boot_id");
  std::string key;
  std::getline(boot_id, key);
  return static_cast<std::int64_t>(content_hash(key));
}

/// What to add to this rank's clock to get rank 0's: zero where both share a clock; else the median
/// over ping-pongs, assuming equal ways (Cristian 1989).
double clock_offset(Communicator& world) {
  constexpr int kRounds = 15;
  const std::int64_t own_key = clock_key();
  std::vector<std::int64_t> keys(static_cast<std::size_t>(world.size()));
  world.all_gather({&own_key, 1, DType::I64}, {keys.data(), world.size(), DType::I64}).wait();
  std::vector<double> offsets;
  double stamp = 0;
  const MutableBuffer buffer{&stamp, 1, DType::F64};
  for (int peer = 1; peer < world.size(); ++peer) {
    if (keys[at(peer)] == keys.front()) continue;
    for (int round = 0; round < kRounds; ++round) {
      if (world.rank() == peer) {
        const double sent = monotonic_seconds();
        world.send(buffer, 0).wait();
        world.recv(buffer, 0).wait();
        offsets.push_back(stamp - (sent + monotonic_seconds()) / 2);
      } else if (world.rank() == 0) {
        world.recv(buffer, peer).wait();
        stamp = monotonic_seconds();
        world.send(buffer, peer).wait();
      }
    }
  }
  return offsets.empty() ? 0.0 : median(std::move(offsets));
}

/// What is trained on, and what is held out if the run evaluates.
DataSplit split_of(const TokenFile& file, const program::Plan& plan, const TrainOptions& options) {
  if (options.evaluate_every > 0) return hold_out_tail(file, plan);
  return {.training = {0, file.size()}, .evaluation = {}};
}

/// Where a new run begins.
RunState start_of(const TrainOptions& options, const TokenFile& file, const DataSplit& split) {
  return {.seed = options.seed,
          .data = identify(file, split.training),
          .settings = settings_of(options)};
}

CheckpointOptions checkpoints_of(const TrainOptions& options) {
  CheckpointOptions checkpoints = options.checkpoints;
  checkpoints.say = options.log;
  return checkpoints;
}

/// A progress thread for one scope.
class BackgroundProgress {
 public:
  BackgroundProgress(Communicator& world, bool on) : world_(world) {
    if (on) world_.progress_in_background(true);
  }
  ~BackgroundProgress() { world_.progress_in_background(false); }
  BackgroundProgress(const BackgroundProgress&) = delete;
  BackgroundProgress& operator=(const BackgroundProgress&) = delete;

 private:
  Communicator& world_;
};

class Training {
 public:
  Training(const program::Plan& plan, const TrainOptions& options, Communicator& world,
           Device& device, StatusBoard* status)
      : plan_(plan),
        options_(options),
        world_(world),
        backend_(device.backend()),
        status_(status),
        file_(options.data_path),
        split_(split_of(file_, plan, options)),
        sampler_(file_, split_.training, plan, options.seed),
        process_bytes_(resident_bytes()),
        stage_(stage_of(plan, world.rank())),
        trainer_(program::lower(plan, stage_),
                 options.evaluate_every > 0
                     ? std::optional(program::lower(plan, stage_, program::Pass::ForwardOnly))
                     : std::nullopt,
                 world, device, options.seed, status),
        checkpoints_(plan, checkpoints_of(options), trainer_, world,
                     start_of(options, file_, split_), status) {
    trainer_.executor().lend_scratch();
    if (kernels::ProductTuning* tuning = device.product_tuning())
      agree_on_products(*tuning, world, options.gemm_cache, options.log);
    if (scales_loss(plan.workload)) scaler_.emplace(options.loss_scaling);
    if (scaler_ && checkpoints_.loss_scale()) scaler_->resume(*checkpoints_.loss_scale());
    if (options.evaluate_every > 0)
      evaluation_.emplace(file_, split_.evaluation, plan, options.seed);
  }

  TrainResult run(const std::function<void(const StepReport&)>& on_step) {
    TrainResult result{.trace = {.measured = true, .plan = plan_, .world_size = world_.size()}};
    const int first_step = checkpoints_.first_step();
    StepWatch watch(options_.watch, trainer_, world_, checkpoints_.losses(), status_);
    std::optional<ReplicaVerifier> verifier;
    if (options_.verify_every > 0 || options_.verify_start) verifier.emplace(trainer_, world_);
    if (options_.verify_start) verifier->verify_state("before the first step");
    program::MeanTiming timing;
    program::MeanExperts experts;
    double after_first = 0;
    checkpoints_.before_first_step();
    world_.barrier().wait();
    for (int step = first_step; step < options_.num_steps && result.stop_signal == 0; ++step) {
      const double begin = monotonic_seconds();
      watch.begin(step + 1);
      StepReport report = train_step(step);
      watch.complete(report, monotonic_seconds() - begin);
      if (step == first_step) after_first = resident_bytes();
      if (report.timing && (step > first_step || options_.num_steps == first_step + 1))
        timing.add(*report.timing);
      if (report.experts) experts.add(*report.experts);
      if (options_.verify_every > 0 && (step + 1) % options_.verify_every == 0)
        verifier->verify(fmt::format("step {}", step + 1));
      if (evaluates_after(step)) report.evaluation_loss = evaluation_loss(step);
      if (options_.keep_steps) {
        result.trace.step_times_s.push_back(report.seconds);
        result.trace.losses.push_back(report.loss);
        result.gradient_norms.push_back(report.gradient_norm);
      }
      result.last_step = report.step;
      on_step(report);
      result.stop_signal = checkpoints_.after_step({.steps_done = step + 1,
                                                    .loss = report.loss,
                                                    .seconds = report.seconds,
                                                    .loss_scale = loss_scale_state(),
                                                    .is_last = step + 1 == options_.num_steps});
    }
    result.saving = checkpoints_.report();
    checkpoints_.finish();
    result.saved = checkpoints_.are_saved();
    result.timing = timing.mean();
    result.experts = experts.mean();
    result.memory = memory(after_first);  // before tracing, whose records are not the plan's
    result.trace.peak_memory_bytes = result.memory.peak_resident_bytes;
    if (options_.traced_steps > 0 && result.stop_signal == 0) add_spans(result.trace);
    return result;
  }

 private:
  StepReport train_step(int step) {
    sampler_.load(step, trainer_.groups().coordinates(), batch_);
    StepReport report{.step = step + 1};
    report.learning_rate = learning_rate(plan_.workload.optimizer, step, options_.num_steps);
    if (status_ != nullptr) status_->set_context(fmt::format("step {}", step + 1));
    const double loss_scale = scaler_ ? scaler_->state().scale : 1;
    const StepOutcome outcome =
        trainer_.train_step(batch_, {.optimizer_step = step + 1 - skipped_steps(),
                                     .learning_rate = report.learning_rate,
                                     .loss_scale = loss_scale});
    const bool finite = std::isfinite(outcome.gradient_norm);
    const bool skipped =
        scaler_ && std::isfinite(outcome.loss) && scaler_->update(finite) && !finite;
    if (!skipped) {
      require_finite(outcome, step + 1, trainer_, world_, backend_);
      report.gradient_norm = outcome.gradient_norm;
    }
    if (scaler_) report.loss_scale = loss_scale;
    report.loss = outcome.loss;
    if (plan_.model.sparse_attention) report.indexer_loss = outcome.indexer_loss;
    if (plan_.model.mtp_layers > 0) report.prediction_loss = outcome.prediction_loss;
    if (plan_.model.moe)
      report.experts = {.balance_loss = outcome.balance_loss,
                        .z_loss = outcome.z_loss,
                        .layers = program::layer_loads(plan_, outcome.expert_load),
                        .beyond_plan = outcome.rows_beyond_plan};
    return report;
  }

  std::optional<LossScaleState> loss_scale_state() const {
    return scaler_ ? std::optional(scaler_->state()) : std::nullopt;
  }
  /// A skipped step does not count for the optimizer's bias correction.
  int skipped_steps() const {
    return scaler_ ? static_cast<int>(scaler_->state().skipped_steps) : 0;
  }

  bool evaluates_after(int step) const {
    return options_.evaluate_every > 0 &&
           ((step + 1) % options_.evaluate_every == 0 || step + 1 == options_.num_steps);
  }

  /// Always over the same held-out batch.
  double evaluation_loss(int step) {
    evaluation_->load(0, trainer_.groups().coordinates(), batch_);
    if (status_ != nullptr) status_->set_context(fmt::format("evaluation after step {}", step + 1));
    const double loss = trainer_.evaluate(batch_);
    require_finite({.loss = loss}, step + 1, trainer_, world_, backend_);
    return loss;
  }

  double largest(double value) {
    const MutableBuffer buffer{&value, 1, DType::F64};
    world_.all_reduce(buffer, buffer, ReduceOp::Max).wait();
    return value;
  }

  MeasuredMemory memory(double after_first) {
    return {.peak_resident_bytes = largest(status_field("VmHWM:")),
            .resident_after_first_step = largest(after_first),
            .resident_at_end = largest(resident_bytes()),
            .arena_bytes = largest(
                static_cast<double>(trainer_.arena().bytes() + trainer_.arena().host_bytes())),
            .scratch_bytes = largest(static_cast<double>(trainer_.executor().scratch_bytes())),
            .process_bytes = largest(process_bytes_)};
  }

  void add_spans(program::Trace& trace) {
    const double offset = clock_offset(world_);
    trainer_.executor().set_tracing(true);
    std::vector<double> traced_seconds;
    for (int i = 0; i < options_.traced_steps; ++i) {
      world_.barrier().wait();
      double origin = monotonic_seconds();
      const MutableBuffer buffer{&origin, 1, DType::F64};
      world_.broadcast(buffer, 0).wait();
      const double begin = monotonic_seconds();
      train_step(options_.num_steps + i);
      traced_seconds.push_back(monotonic_seconds() - begin);
      collect_spans(i, offset, origin, trace);
    }
    trainer_.executor().set_tracing(false);
    const double untraced = trace.step_times_s.empty() ? 0 : median(trace.step_times_s);
    if (untraced > 0) trace.tracing_overhead = median(traced_seconds) / untraced - 1;
  }

  /// Only times travel, two numbers an interval: rank 0 knows every rank's program.
  void collect_spans(int step, double offset, double origin, program::Trace& trace) {
    static_assert(sizeof(Interval) == 2 * sizeof(double));
    if (world_.rank() != 0) {
      std::vector<Interval> intervals = trainer_.executor().intervals();
      for (Interval& interval : intervals) {
        interval.start_s += offset - origin;
        interval.end_s += offset - origin;
      }
      world_
          .send({intervals.data(), static_cast<std::int64_t>(2 * intervals.size()), DType::F64}, 0)
          .wait();
      return;
    }
    const program::Mesh& mesh = trainer_.groups().mesh();
    for (int rank = 0; rank < world_.size(); ++rank) {
      const int stage = mesh.coordinates(rank).pp;
      const program::Program& program = stage == stage_ ? trainer_.program() : lowered(stage);
      std::vector<Interval> intervals = trainer_.executor().intervals();
      if (rank == 0) {
        for (Interval& interval : intervals) {
          interval.start_s -= origin;
          interval.end_s -= origin;
        }
      } else {
        intervals.resize(program.instances.size());
        world_
            .recv({intervals.data(), static_cast<std::int64_t>(2 * intervals.size()), DType::F64},
                  rank)
            .wait();
      }
      for (std::size_t i = 0; i < intervals.size(); ++i) {
        program::Span span = program::make_span(program, program.instances[i], mesh, rank);
        span.step = step;
        span.start_s = intervals[i].start_s;
        span.end_s = intervals[i].end_s;
        trace.spans.push_back(std::move(span));
      }
    }
  }

  const program::Program& lowered(int stage) {
    const auto found = other_stages_.find(stage);
    if (found != other_stages_.end()) return found->second;
    return other_stages_.emplace(stage, program::lower(plan_, stage)).first->second;
  }

  const program::Plan& plan_;
  TrainOptions options_;
  Communicator& world_;
  kernels::Backend& backend_;
  StatusBoard* status_;
  TokenFile file_;
  DataSplit split_;
  Sampler sampler_;
  std::optional<Sampler> evaluation_;
  double process_bytes_;
  int stage_;
  Trainer trainer_;
  RunCheckpoints checkpoints_;
  std::optional<LossScaler> scaler_;  // fp16
  StepBatch batch_;
  std::map<int, program::Program> other_stages_;
};

}  // namespace

RunSettings settings_of(const TrainOptions& options) {
  return {.num_steps = options.num_steps, .loss_scaling = options.loss_scaling};
}

void check_same_start(Communicator& world, const std::string& folder,
                      std::optional<std::int64_t> steps_done) {
  constexpr std::int64_t kNew = -1;
  const std::int64_t own = steps_done.value_or(kNew);
  std::int64_t first = own;
  world.broadcast({&first, 1, DType::I64}, 0).wait();
  const auto say = [](std::int64_t step) {
    return step == kNew ? std::string("no checkpoint")
                        : fmt::format("the checkpoint of step {}", step);
  };
  if (own != first)
    throw ConfigError(
        fmt::format("{}: rank {} finds {} to resume there, rank 0 {}; use a "
                    "--checkpoint-dir on a file system that all hosts share",
                    folder, world.rank(), say(own), say(first)));
}

void check_start(const program::Plan& plan, const TrainOptions& options) {
  const TokenFile file(options.data_path);
  check_start(plan, options.checkpoints, start_of(options, file, split_of(file, plan, options)));
}

TrainResult train(const program::Plan& plan, const TrainOptions& options, Communicator& world,
                  Device& device, StatusBoard* status,
                  const std::function<void(const StepReport&)>& on_step) {
  if (world.size() != plan.parallel.world_size())
    throw ConfigError(
        fmt::format("the plan {} needs {} ranks, but the job has {}: start as many, or "
                    "add --elastic to plan for those that there are",
                    program::to_string(plan.parallel), plan.parallel.world_size(), world.size()));
  check_start(plan, options);
  const BackgroundProgress progress(world, plan.progress_thread);
  return Training(plan, options, world, device, status).run(on_step);
}

}  // namespace meshplan::runtime
