// Checkpoints of a training run: what it starts from, when it saves, when it stops.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node_store/memory_saver.hpp"
#include "program/plan/plan.hpp"
#include "program/trace/saving_report.hpp"
#include "runtime/data/data.hpp"
#include "runtime/train/checkpoint_options.hpp"
#include "train/save_schedule.hpp"
#include "train/trainer.hpp"
#include "weights/checkpoint_writer.hpp"

namespace meshplan::runtime {

/// What is trained on, for RunState.
DataIdentity identify(const TokenFile& file, TokenRange training);

/// Everything about the start that can be known without ranks. Opens what is resumed or imported.
/// @param start  of a new run: its seed, data and settings
/// @throws ConfigError naming what does not fit; for a damaged checkpoint also the newest intact
/// one
void check_start(const program::Plan& plan, const CheckpointOptions& options,
                 const RunState& start);

/// One per rank.
class RunCheckpoints {
 public:
  /// Collective over `world`: loads what the run starts from, takes the folder to save to.
  /// @throws ConfigError as check_start, and, on every rank, for data that does not have its hash
  /// and for values that are not finite
  RunCheckpoints(const program::Plan& plan, const CheckpointOptions& options, Trainer& trainer,
                 Communicator& world, RunState start, StatusBoard* status);

  /// Steps that are done before this run.
  int first_step() const { return static_cast<int>(run_.step); }
  /// The loss scale of the run that is resumed, if it had one.
  const std::optional<LossScaleState>& loss_scale() const { return run_.loss_scale; }
  /// Losses of the last steps, oldest first.
  const std::vector<double>& losses() const { return run_.losses; }

  /// From here on signals are looked for.
  void before_first_step() const;
  /// A step that is done.
  struct StepEnd {
    int steps_done = 0;  // of the whole run
    double loss = 0;
    double seconds = 0;                        // of the slowest rank
    std::optional<LossScaleState> loss_scale;  // where it stands now, if there is one
    bool is_last = false;                      // the run ends here anyway
  };
  /// Saves where it is due. Collective if states are saved or signals are looked for.
  /// @returns the signal, the same on all ranks, for which the run has to stop here; 0: none
  int after_step(const StepEnd& step);
  bool are_saved() const { return writer_.has_value(); }
  /// The last save, complete when this returns; states in memory are then removed.
  void finish();
  /// Collective: what saving cost.
  program::SavingReport report() const;

 private:
  /// What ranks agree on after a step, each by its maximum over them.
  struct Agreement {
    std::int32_t stop = 0;    // the signal
    std::int32_t memory = 0;  // MemorySaver::State
    std::int32_t save = 0;    // a checkpoint is due
  };

  void load_start();
  std::map<std::string, std::string> companions_of_start() const;
  void draw_id();
  void begin_memory();
  Agreement agree(const StepEnd& step);
  void save_to_memory(MemorySaver::State state);
  void give_up_memory();
  void complete_save();
  void say(const std::string& line) const;
  /// @throws SharedConfigError on all ranks for what is wrong with the source on any
  void load(ParameterSource& source, LoadedState which);
  void save();

  const program::Plan& plan_;
  CheckpointOptions options_;
  Trainer& trainer_;
  Communicator& world_;
  RunState run_;
  std::map<std::string, std::string> companions_;
  std::optional<std::int64_t> saved_step_;
  std::optional<CheckpointWriter> writer_;
  SaveSchedule schedule_;
  std::unique_ptr<MemorySaver> memory_;
  program::SavingReport saving_;
  double steps_s_ = 0;  // of all steps, without what saving added
};

}  // namespace meshplan::runtime
