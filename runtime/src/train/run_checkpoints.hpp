// Checkpoints of a training run: what it starts from, when it saves, when it stops.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/plan/plan.hpp"
#include "runtime/data/data.hpp"
#include "runtime/train/checkpoint_options.hpp"
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
  /// Saves where it is due. Collective if checkpoints are saved or signals are looked for.
  /// @param steps_done  of the whole run; @param loss_scale  where it stands now, if there is one
  /// @param is_last  the run ends here anyway
  /// @returns the signal, the same on all ranks, for which the run has to stop here; 0: none
  int after_step(int steps_done, double loss, const std::optional<LossScaleState>& loss_scale,
                 bool is_last);
  bool are_saved() const { return writer_.has_value(); }
  /// The last save, complete when this returns.
  void finish();

 private:
  void load_start();
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
};

}  // namespace meshplan::runtime
