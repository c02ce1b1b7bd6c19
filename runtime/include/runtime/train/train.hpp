// The training loop: data, steps, evaluation, timing, traces.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "program/plan/plan.hpp"
#include "program/trace/saving_report.hpp"
#include "program/trace/step_report.hpp"
#include "program/trace/trace.hpp"
#include "runtime/train/checkpoint_options.hpp"
#include "runtime/train/loss_scale.hpp"
#include "runtime/train/watch_options.hpp"

namespace meshplan::runtime {

class Communicator;
class Device;
class StatusBoard;

struct TrainOptions {
  int num_steps = 20;  // of the whole run: a resumed one does what is left
  std::string data_path;
  std::uint64_t seed = 1;
  int evaluate_every = 0;    // steps; 0 = never
  int verify_every = 0;      // steps; 0 = never
  bool verify_start = true;  // compare what several ranks hold before the first step
  int traced_steps = 0;      // further steps that are traced, after those of the run
  bool keep_steps = true;    // time, loss and norm of every step in the result: 32 bytes a step
  CheckpointOptions checkpoints;
  WatchOptions watch;
  LossScaling loss_scaling;                     // fp16
  std::string gemm_cache;                       // folder, if the device tunes products
  std::function<void(const std::string&)> log;  // one line of rank 0; null = silent
};

using program::StepReport;

/// Memory of the rank that uses most, when the timed steps are done.
struct MeasuredMemory {
  double peak_resident_bytes = 0;  // as the kernel counts it (VmHWM)
  double resident_after_first_step = 0;
  double resident_at_end = 0;
  double arena_bytes = 0;
  double scratch_bytes = 0;
  double process_bytes = 0;  // resident before the arena was allocated
};

/// Complete on every rank, except for the trace's spans, which only rank 0 has, and for the steps
/// of ranks that do not keep them (TrainOptions::keep_steps).
struct TrainResult {
  int last_step = 0;
  int stop_signal = 0;                                // that asked for the end; 0: none did
  bool saved = false;                                 // the last step is in a checkpoint
  std::optional<program::StepTiming> timing;          // mean over the timed steps after the first
  std::optional<program::ExpertReport> experts;       // mean over the steps
  std::vector<std::optional<double>> gradient_norms;  // of each step; none = it was skipped
  MeasuredMemory memory;
  program::SavingReport saving;  // without the save at the end, which holds no step up
  program::Trace trace;
};

/// Trains for `num_steps`. Collective over `world`, which has the plan's world size.
/// @param on_step  called on every rank after each step
/// @throws ConfigError, IoError for the data; CommError if a peer fails; SharedError on every rank
/// once a loss or gradient norm is not finite
TrainResult train(const program::Plan& plan, const TrainOptions& options, Communicator& world,
                  Device& device, StatusBoard* status,
                  const std::function<void(const StepReport&)>& on_step);

/// What a checkpoint keeps of them beside the plan.
RunSettings settings_of(const TrainOptions& options);

/// Collective: every rank found the same start. @param steps_done  of the run that is resumed;
/// nothing for a new one
/// @throws ConfigError on a rank that found another start than rank 0
void check_same_start(Communicator& world, const std::string& folder,
                      std::optional<std::int64_t> steps_done);

/// Everything about the start of a run that can be known without ranks; train() asks it, too.
/// @throws ConfigError if the checkpoint or the weights to start from do not fit, or the folder to
/// save to holds another run
void check_start(const program::Plan& plan, const TrainOptions& options);

}  // namespace meshplan::runtime
