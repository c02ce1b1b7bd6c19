#include "train/run_checkpoints.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <utility>

#include "core/error.hpp"
#include "runtime/job/run_rank.hpp"
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

/// `text` of rank `speaker`, on all ranks.
std::string text_of_rank(int speaker, std::string text, Communicator& world) {
  std::int64_t size = std::ssize(text);
  world.broadcast({&size, 1, DType::I64}, speaker).wait();
  text.resize(static_cast<std::size_t>(size));
  world.broadcast({text.data(), size, DType::U8}, speaker).wait();
  return text;
}

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
  if (!options.resume.empty()) {
    const Checkpoint checkpoint = open_checkpoint(options.resume);
    const RunState& run = checkpoint.index().run;
    check_fits(checkpoint.index(), options.resume, plan, ResumeKind::Continue);
    const program::Plan saved = checkpoint.plan();
    check_settings({saved, run.seed, run.settings}, {plan, start.seed, start.settings},
                   options.resume, options.changes);
    check_data(run.data, start.data, options.resume);
    if (run.step >= start.settings->num_steps)
      throw ConfigError(
          fmt::format("--steps {}: counts from the start of the run, and {} is at "
                      "step {} already; use more",
                      start.settings->num_steps, options.resume, run.step));
    steps_done = run.step;
  }
  check_folder(options, steps_done);
  const bool imports = !options.init_from.empty() && is_hugging_face_folder(options.init_from);
  if (!options.assume.empty() && !imports)
    throw ConfigError(fmt::format(
        "--assume {}: says how to read the config.json of a Hugging Face folder; give it with "
        "--init-from and such a folder",
        options.assume));
  if (options.init_from.empty()) return;
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
    : plan_(plan), options_(options), trainer_(trainer), world_(world), run_(std::move(start)) {
  load_start();
  if (options_.folder.empty()) return;
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
  std::int32_t speaker = fault.empty() ? world_.size() : world_.rank();
  const MutableBuffer lowest{&speaker, 1, DType::I32};
  world_.all_reduce(lowest, lowest, ReduceOp::Min).wait();
  if (speaker == world_.size()) return;
  if (world_.rank() == speaker && which == LoadedState::All)
    fault += newest_intact_beside(options_.resume);
  throw SharedConfigError(text_of_rank(speaker, fault, world_));
}

void RunCheckpoints::load_start() {
  if (!options_.resume.empty()) {
    Checkpoint checkpoint = open_checkpoint(options_.resume);
    load(checkpoint, LoadedState::All);
    const RunState now = std::exchange(run_, checkpoint.index().run);
    run_.data = now.data;
    run_.settings = now.settings;
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

void RunCheckpoints::before_first_step() const {
  if (options_.stop_signal) options_.stop_signal();
}

int RunCheckpoints::after_step(int steps_done, double loss,
                               const std::optional<LossScaleState>& loss_scale, bool is_last) {
  constexpr std::size_t kLossesKept = 100;
  run_.step = steps_done;
  run_.next_sequence = steps_done * plan_.workload.global_batch_size;
  if (run_.losses.size() >= kLossesKept) run_.losses.erase(run_.losses.begin());
  run_.losses.push_back(loss);
  run_.loss_scale = loss_scale;
  if (writer_) writer_->check();
  std::int32_t stop = 0;
  if (options_.stop_signal && !is_last) {
    stop = options_.stop_signal();
    const MutableBuffer buffer{&stop, 1, DType::I32};
    world_.all_reduce(buffer, buffer, ReduceOp::Max).wait();
  }
  const bool due = options_.every > 0 && steps_done % options_.every == 0;
  if (writer_ && (stop != 0 || due)) save();
  return stop;
}

void RunCheckpoints::save() {
  if (saved_step_ == run_.step) return;
  trainer_.device().synchronize();
  writer_->save(run_, trainer_.device().backend(), trainer_.arena());
  saved_step_ = run_.step;
}

void RunCheckpoints::finish() {
  if (!writer_) return;
  save();
  writer_->wait();
  world_.barrier().wait();  // rank 0 has completed it
}

}  // namespace meshplan::runtime
