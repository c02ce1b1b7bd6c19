// Executes a program: the only loop that runs training. It has no case per parallelism: the program
// says what to compute, what to communicate, in which order and who waits for whom.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "program/program.hpp"
#include "program/trace/step_report.hpp"
#include "runtime/execute/step_batch.hpp"

namespace meshplan::runtime {

class Arena;
class Device;
class Groups;
class StatusBoard;

/// What a step needs that changes from step to step; travels with the batch.
struct StepSettings {
  int optimizer_step = 1;  // 1 at the first update
  double learning_rate = 0;
  double loss_scale = 1;  // of the gradients inside the step; a power of two leaves no trace
};

struct StepOutcome {
  double loss = 0;           // mean over the tokens of the global batch that count
  double gradient_norm = 0;  // before clipping, without the loss scale; 0 for evaluation
  double balance_loss = 0;   // of the routers, sum over the layers; in the gradient, not in `loss`
  double z_loss = 0;         // likewise
  double indexer_loss = 0;   // of sparse attention's indexers, sum over the layers; likewise
  /// Of the prediction modules, mean of their losses; likewise, weighted.
  double prediction_loss = 0;
  std::vector<float> expert_load;            // Region::ExpertLoad, of the whole batch
  program::RowsBeyondPlan rows_beyond_plan;  // of this rank
};

/// When an instance ran; a communication lasts from its issue until its end was seen.
struct Interval {
  double start_s = 0;
  double end_s = 0;
};

/// A program bound to a rank's memory, device and groups, all of which must outlive it.
class Executor {
 public:
  /// @param status  may be null
  Executor(const program::Program& program, Device& device, Arena& arena, Groups& groups,
           StatusBoard* status);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs the loop body once. Collective over all ranks of the plan.
  StepOutcome run(const StepBatch& batch, const StepSettings& settings);

  /// From now on every run records when each instance started and ended. Nothing is replayed from
  /// a capture meanwhile.
  void set_tracing(bool on);
  /// What the last traced run recorded: one entry per instance of the program, seconds of the
  /// monotonic clock.
  const std::vector<Interval>& intervals() const;

  std::int64_t scratch_bytes() const;
  /// To the backend: for who runs operations outside of a step.
  void lend_scratch();
  /// Between runs: frees what rows of experts beyond the plan's buffers took.
  void give_back_room();

 private:
  class Body;  // executor_body.hpp
  std::unique_ptr<Body> body_;
};

}  // namespace meshplan::runtime
