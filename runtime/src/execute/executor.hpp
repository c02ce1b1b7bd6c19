// Executes a program: the only loop that runs training. It has no case per parallelism: the program
// says what to compute, what to communicate, in which order and who waits for whom.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bind/operator_binding.hpp"
#include "execute/arena.hpp"
#include "execute/groups.hpp"
#include "execute/issue_order.hpp"
#include "program/program.hpp"
#include "program/step_report.hpp"
#include "program/zero.hpp"
#include "runtime/execute/device.hpp"
#include "runtime/execute/step_batch.hpp"
#include "runtime/guard/status_board.hpp"

namespace meshplan::runtime {

class ExpertRoom;

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
  std::vector<float> expert_load;            // Region::ExpertLoad, of the whole batch
  program::RowsBeyondPlan rows_beyond_plan;  // of this rank
};

/// When an instance ran; a communication lasts from its issue until its end was seen.
struct Interval {
  double start_s = 0;
  double end_s = 0;
};

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
  void set_tracing(bool on) { tracing_ = on; }
  /// Of the last traced run: one entry per instance of the program, seconds of the monotonic clock.
  const std::vector<Interval>& intervals() const { return intervals_; }

  std::int64_t scratch_bytes() const { return scratch_bytes_; }
  /// To the backend: for who runs operations outside of a step.
  void lend_scratch();
  /// Between runs: frees what rows of experts beyond the plan's buffers took.
  void give_back_room();

 private:
  struct Calls;
  struct Bound;

  enum class Capture { No, Now, Replay };

  void bind();
  void bind_regions();
  Communicator& communicator_of(const program::Operation& operation) const;
  void bind_communication(const program::Operation& operation, Bound& bound);
  Calls bind_calls(const program::OperationInstance& instance, const models::SymbolValues& sizes);
  std::byte* memory_of(const program::OperationInstance& instance, program::ValueId value);
  Calls& calls_of(int index);
  std::function<Handle()> communication(const program::OperationInstance& instance,
                                        const program::Operation& operation, Communicator& group);
  std::function<Handle()> flat_communication(const program::OperationInstance& instance,
                                             const program::FlatCollectiveOp& flat,
                                             Communicator& group);
  std::function<Handle()> exchange_of_rows(const program::OperationInstance& instance,
                                           const program::Operation& operation,
                                           Communicator& group);
  const float* expert_load(int row) const;
  bool counts_here(const program::StepOp& step) const;
  program::StepOp owned_part(program::StepOp step) const;
  std::byte* flat_memory(program::Region region, const program::StepOp& step) const;
  std::function<void()> bind_accumulation(const program::OperationInstance& instance,
                                          const program::StepOp& step);
  std::function<void()> bind_compression(const program::OperationInstance& instance,
                                         const program::StepOp& step);
  std::function<void()> bind_settling();
  float* compressed_gradients(const program::OperationInstance& instance, program::StepOp step,
                              program::FlatRange range) const;
  std::function<void()> bind_state_copy(const program::OperationInstance& instance,
                                        const program::StepOp& step);
  std::function<void()> bind_step_work(const program::OperationInstance& instance,
                                       const program::StepOp& step);
  std::string status_of(const program::OperationInstance& instance) const;
  void start(int index);
  void await(int index);
  Capture capture_now() const;
  void collect_intervals();
  StepOutcome outcome();
  double loss_tokens() const;
  void load(const StepBatch& batch);

  const program::Program& program_;
  Device& device_;
  kernels::Backend& backend_;
  Arena& arena_;
  Groups& groups_;
  StatusBoard* status_;
  program::ShardPlace shard_place_;
  IssueOrder order_;
  std::unique_ptr<ExpertRoom> room_;  // null where experts cannot get more rows than the plan's;
                                      // outlives communications in flight, which are bound_'s
  std::unique_ptr<OperatorBinder> binder_;
  std::vector<Bound> bound_;
  std::vector<std::size_t> region_ends_;  // index of each region's EndRegion in order_.issues
  std::vector<std::unique_ptr<CapturedGraph>> graphs_;  // one per region; null until captured
  int runs_ = 0;                                        // untraced ones
  std::string finishing_;
  const StepBatch* batch_ = nullptr;
  StepSettings settings_;
  void* scratch_ = nullptr;
  std::int64_t scratch_bytes_ = 0;
  bool tracing_ = false;
  std::vector<Interval> intervals_;
  std::vector<float> no_load_;  // zeros for Region::ExpertLoad
};

}  // namespace meshplan::runtime
