#include "train/run_checkpoints.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <random>
#include <utility>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "program/plan_file/plan_file.hpp"
#include "runtime/job/run_rank.hpp"
#include "runtime/node_store/recovery.hpp"
#include "runtime/train/kept_settings.hpp"
#include "runtime/weights/hugging_face_weights.hpp"

namespace meshplan::runtime {
namespace {

void check_data(const DataIdentity& then, const DataIdentity& now, const std::string& folder) {
  const auto fail = [&](const std::string& what) {
    throw ConfigError(fmt::format("{}: {}; or start a new run from the weights with --init-from {}",
                                  folder, what, folder));
  };
  if (then.tokens != now.tokens || then.fingerprint != now.fingerprint)
    fail(
        fmt::format("was trained on {} ({} tokens), but {} ({} tokens) is other data: continue "
                    "with the same",
                    then.file, then.tokens, now.file, now.tokens));
  if (then.training_tokens != now.training_tokens)
    fail(
        fmt::format("trained on {} of the {} tokens, but now {}: --eval-every must hold out the "
                    "same as before ({})",
                    then.training_tokens, then.tokens, now.training_tokens,
                    then.training_tokens == then.tokens ? "0" : "more than 0"));
}

/// A folder must not mix runs: "latest" would mean the wrong one.
void check_folder(const CheckpointOptions& options, std::int64_t start) {
  if (options.folder.empty()) return;
  require_savable(options.folder);
  const std::vector<std::int64_t> steps = checkpoint_steps(options.folder);
  if (steps.empty() || steps.back() <= start) return;
  if (options.resume.empty())
    throw ConfigError(
        fmt::format("{}: holds checkpoints of another run, up to step {}; continue "
                    "it with --resume latest, or use another --checkpoint-dir",
                    options.folder, steps.back()));
  const std::optional<std::int64_t> intact = newest_intact_step(options.folder, options.resume);
  if (intact && *intact > start)
    throw ConfigError(fmt::format(
        "{}: holds an intact checkpoint of step {}, newer than the one of step {} to be resumed; "
        "continue from it: {}; or go back to step {} with another --checkpoint-dir",
        options.folder, *intact, start,
        resume_command(options.folder, *intact, checkpoint_path(options.folder, *intact)), start));
  throw ConfigError(fmt::format(
      "{}: holds damaged checkpoints up to step {}, newer than the one of step {} to be resumed; "
      "move them aside and continue: {}",
      options.folder, steps.back(), start, resume_command(options.folder, start, options.resume)));
}

/// What a run continues: a state in memory, or a checkpoint on the disk.
struct Continued {
  CheckpointIndex index;
  std::string where;
};
std::optional<Continued> continued_by(const CheckpointOptions& options) {
  if (options.recovered) return Continued{options.recovered->index(), options.recovered->label()};
  if (options.resume.empty()) return std::nullopt;
  return Continued{open_checkpoint(options.resume).index(), options.resume};
}

/// Adds the seconds of a scope.
class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total) {}
  ~Stopwatch() { total_ += seconds(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  double& total_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

DataIdentity identify(const TokenFile& file, TokenRange training) {
  constexpr std::int64_t kEnd = 16384;  // tokens hashed at either end
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < std::min(kEnd, file.size()); ++i) tokens.push_back(file[i]);
  for (std::int64_t i = std::max(kEnd, file.size() - kEnd); i < file.size(); ++i)
    tokens.push_back(file[i]);
  return {.file = file.path(),
          .tokens = file.size(),
          .training_tokens = training.size(),
          .fingerprint = data_hash(std::as_bytes(std::span(tokens)))};
}

void check_start(const program::Plan& plan, const CheckpointOptions& options,
                 const RunState& start) {
  require_invariant(options.resume.empty() || options.init_from.empty(),
                    "a run that continues starts from no other weights");
  std::int64_t steps_done = 0;
  if (const auto continued = continued_by(options)) {
    const auto& [index, where] = *continued;
    const RunState& run = index.run;
    check_fits(index, where, plan, ResumeKind::Continue);
    const program::Plan saved = program::parse_plan(index.plan_json, where + ": plan");
    check_settings({saved, run.seed, run.settings}, {plan, start.seed, start.settings}, where,
                   options.changes);
    check_data(run.data, start.data, where);
    if (run.step >= start.settings->num_steps)
      throw ConfigError(
          fmt::format("--steps {}: counts from the start of the run, and {} is at "
                      "step {} already; use more",
                      start.settings->num_steps, where, run.step));
    steps_done = run.step;
  }
  check_folder(options, steps_done);
  const bool imports = !options.init_from.empty() && is_hugging_face_folder(options.init_from);
  if (!options.assume.empty() && !imports)
    throw ConfigError(fmt::format(
        "--assume {}: says how to read the config.json of a Hugging Face folder; give it with "
        "--init-from and such a folder",
        options.assume));
  if (options.init_from.empty() || options.recovered) return;
  if (imports) {
    models::ModelSpec base = plan.model;
    base.adapters.reset();  // they begin anew
    check_same_architecture(HuggingFaceModel(options.init_from, options.assume).spec(),
                            options.init_from, base, TrainingChoices::MayDiffer);
    return;
  }
  const Checkpoint checkpoint = open_checkpoint(options.init_from);
  check_fits(checkpoint.index(), options.init_from, plan, ResumeKind::WeightsOnly);
}

RunCheckpoints::RunCheckpoints(const program::Plan& plan, const CheckpointOptions& options,
                               Trainer& trainer, Communicator& world, RunState start,
                               StatusBoard* status)
    : plan_(plan),
      options_(options),
      trainer_(trainer),
      world_(world),
      run_(std::move(start)),
      schedule_(0, std::nullopt, 0) {
  load_start();
  if (!run_.id) draw_id();
  // Failures of independent devices add up.
  const auto job_mtbf_s =
      options_.device_mtbf_s ? std::optional(*options_.device_mtbf_s / world.size()) : std::nullopt;
  schedule_ = SaveSchedule(options_.every, job_mtbf_s, first_step());
  if (options_.folder.empty()) return;
  if (options_.memory.every > 0) begin_memory();
  writer_.emplace(trainer.program(), trainer.saver_place(), world, options_.folder, options_.keep,
                  std::move(companions_), status, options_.warn);
}

void RunCheckpoints::load(ParameterSource& source, LoadedState which) {
  std::string fault;
  try {
    trainer_.load(source, which);
  } catch (const ConfigError& error) {
    fault = error.what();
  }
  source.finish();
  std::int32_t speaker = fault.empty() ? world_.size() : world_.rank();
  const MutableBuffer lowest{&speaker, 1, DType::I32};
  world_.all_reduce(lowest, lowest, ReduceOp::Min).wait();
  if (speaker == world_.size()) return;
  if (world_.rank() == speaker && which == LoadedState::All && !options_.recovered)
    fault += newest_intact_beside(options_.resume);
  throw SharedConfigError(broadcast_text(world_, speaker, fault));
}

void RunCheckpoints::load_start() {
  const auto go_on_from = [&](const RunState& before) {
    const RunState now = std::exchange(run_, before);
    run_.data = now.data;
    run_.settings = now.settings;
  };
  if (options_.recovered) {
    load(*options_.recovered, LoadedState::All);
    go_on_from(options_.recovered->index().run);
    companions_ = companions_of_start();
  } else if (!options_.resume.empty()) {
    Checkpoint checkpoint = open_checkpoint(options_.resume);
    load(checkpoint, LoadedState::All);
    go_on_from(checkpoint.index().run);
    companions_ = checkpoint.companions();
    saved_step_ = run_.step;
  } else if (is_hugging_face_folder(options_.init_from) && !options_.init_from.empty()) {
    HuggingFaceModel model(options_.init_from, options_.assume);
    load(model, LoadedState::WeightsOnly);
    companions_ = model.companions();
  } else if (!options_.init_from.empty()) {
    Checkpoint checkpoint = open_checkpoint(options_.init_from);
    load(checkpoint, LoadedState::WeightsOnly);
    companions_ = checkpoint.companions();
  }
}

/// A state in memory holds none: the run has them from the disk or from what it was started from.
std::map<std::string, std::string> RunCheckpoints::companions_of_start() const {
  if (!options_.resume.empty()) return open_checkpoint(options_.resume).companions();
  if (options_.init_from.empty()) return {};
  if (is_hugging_face_folder(options_.init_from))
    return HuggingFaceModel(options_.init_from, options_.assume).companions();
  return open_checkpoint(options_.init_from).companions();
}

void RunCheckpoints::draw_id() {
  std::int64_t number = 0;
  if (world_.rank() == 0) {
    std::random_device random;
    number = static_cast<std::int64_t>(std::uint64_t{random()} << 32 | random());
  }
  world_.broadcast({&number, 1, DType::I64}, 0).wait();
  run_.id = hex(static_cast<std::uint64_t>(number));
}

void RunCheckpoints::begin_memory() {
  const auto resumed_step = options_.recovered ? std::optional(run_.step) : std::nullopt;
  memory_ = std::make_unique<MemorySaver>(trainer_.program(), trainer_.saver_place(), world_,
                                          options_.memory, options_.folder, resumed_step);
  saving_.memory.bytes = memory_->share_bytes();
  if (!memory_->has_partner())
    say("memory: all ranks are on one node, so no other node keeps copies of the state");
}

void RunCheckpoints::say(const std::string& line) const {
  if (world_.rank() == 0 && options_.say) options_.say(line);
}

void RunCheckpoints::before_first_step() const {
  if (options_.stop_signal) options_.stop_signal();
}

int RunCheckpoints::after_step(const StepEnd& step) {
  constexpr std::size_t kLossesKept = 100;
  run_.step = step.steps_done;
  run_.next_sequence = step.steps_done * plan_.workload.global_batch_size;
  if (run_.losses.size() >= kLossesKept) run_.losses.erase(run_.losses.begin());
  run_.losses.push_back(step.loss);
  run_.loss_scale = step.loss_scale;
  steps_s_ += step.seconds;
  schedule_.add_step(step.seconds);
  if (writer_) writer_->check();
  if (schedule_.is_open() && writer_->is_idle()) complete_save();
  const Agreement agreed = agree(step);
  if (writer_ && (agreed.stop != 0 || agreed.save != 0)) save();
  if (memory_ && agreed.memory == static_cast<std::int32_t>(MemorySaver::State::Failed))
    give_up_memory();
  // What ends here is saved to the disk.
  const bool ends = step.is_last || agreed.stop != 0;
  if (memory_ && !ends && step.steps_done % options_.memory.every == 0)
    save_to_memory(static_cast<MemorySaver::State>(agreed.memory));
  return agreed.stop;
}

RunCheckpoints::Agreement RunCheckpoints::agree(const StepEnd& step) {
  Agreement own;
  // Ranks measure other times, so one of them decides.
  if (!schedule_.is_measured() || world_.rank() == 0)
    own.save = schedule_.is_due(step.steps_done) ? 1 : 0;
  if (step.is_last) return {.save = schedule_.is_measured() ? 0 : own.save};
  if (options_.stop_signal) own.stop = options_.stop_signal();
  if (memory_) {
    const Stopwatch watch(saving_.memory.stall_s);
    own.memory = static_cast<std::int32_t>(memory_->state());
  }
  if (!options_.stop_signal && !memory_ && !schedule_.is_measured()) return own;
  static_assert(sizeof(Agreement) == 3 * sizeof(std::int32_t));
  const MutableBuffer all{&own, 3, DType::I32};
  world_.all_reduce(all, all, ReduceOp::Max).wait();
  return own;
}

void RunCheckpoints::save() {
  if (saved_step_ == run_.step) return;
  const double before = saving_.disk.stall_s;
  {
    const Stopwatch watch(saving_.disk.stall_s);
    trainer_.device().synchronize();
    writer_->save(run_, trainer_.device().backend(), trainer_.arena());
  }
  saved_step_ = run_.step;
  ++saving_.disk.saves;
  saving_.disk.bytes = writer_->share_bytes();
  schedule_.begin(static_cast<int>(run_.step), saving_.disk.stall_s - before);
}

void RunCheckpoints::complete_save() {
  if (const std::string line = schedule_.complete(writer_->last_write_s()); !line.empty())
    say(line);
}

void RunCheckpoints::save_to_memory(MemorySaver::State state) {
  if (state == MemorySaver::State::Busy) {
    if (++saving_.memory.skipped == 1)
      say(
          fmt::format("memory: the state after step {} is not kept: the one before is still on its "
                      "way; further ones are counted in the summary",
                      run_.step));
    return;
  }
  const Stopwatch watch(saving_.memory.stall_s);
  trainer_.device().synchronize();
  memory_->save(run_, trainer_.device().backend(), trainer_.arena());
  ++saving_.memory.saves;
}

void RunCheckpoints::give_up_memory() {
  std::int32_t speaker = memory_->failure().empty() ? world_.size() : world_.rank();
  const MutableBuffer lowest{&speaker, 1, DType::I32};
  world_.all_reduce(lowest, lowest, ReduceOp::Min).wait();
  const std::string cause = broadcast_text(world_, speaker, memory_->failure());
  memory_->remove();
  memory_.reset();
  if (world_.rank() == 0 && options_.warn)
    options_.warn(
        fmt::format("rank {}: {}; states are not kept in memory any more, and training goes on",
                    speaker, cause));
}

void RunCheckpoints::finish() {
  if (!writer_) return;
  save();
  writer_->wait();
  world_.barrier().wait();  // rank 0 has completed it
  if (memory_)
    memory_->remove();
  else if (options_.recovered)
    remove_stores(world_, options_.memory, options_.folder);
  memory_.reset();
}

program::SavingReport RunCheckpoints::report() const {
  program::SavingReport report = saving_;
  double figures[] = {report.disk.stall_s, report.memory.stall_s,
                      static_cast<double>(report.disk.bytes),
                      static_cast<double>(report.memory.bytes)};
  const MutableBuffer all{figures, std::ssize(figures), DType::F64};
  world_.all_reduce(all, all, ReduceOp::Max).wait();
  report.disk.stall_s = figures[0];
  report.memory.stall_s = figures[1];
  report.disk.bytes = static_cast<std::int64_t>(figures[2]);
  report.memory.bytes = static_cast<std::int64_t>(figures[3]);
  for (program::SavingTimes* place : {&report.disk, &report.memory})
    place->stall_share = steps_s_ > 0 ? place->stall_s / steps_s_ : 0;
  return report;
}

}  // namespace meshplan::runtime
