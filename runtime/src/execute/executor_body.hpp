// The executor's body: executor.cpp issues a step; executor_*.cpp bind what is no kernel of a
// compute operation.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bind/operator_binding.hpp"
#include "execute/arena.hpp"
#include "execute/executor.hpp"
#include "execute/expert_room.hpp"
#include "execute/groups.hpp"
#include "execute/issue_order.hpp"
#include "program/zero/zero.hpp"
#include "runtime/execute/device.hpp"
#include "runtime/guard/status_board.hpp"

namespace meshplan::runtime {

class Executor::Body {
 public:
  Body(const program::Program& program, Device& device, Arena& arena, Groups& groups,
       StatusBoard* status);
  ~Body();
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  StepOutcome run(const StepBatch& batch, const StepSettings& settings);
  void set_tracing(bool on) { tracing_ = on; }
  const std::vector<Interval>& intervals() const { return intervals_; }
  std::int64_t scratch_bytes() const { return scratch_bytes_; }
  void lend_scratch();
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
  std::function<void()> bind_weight_fetch(const program::OperationInstance& instance,
                                          const program::StepOp& owned);
  std::function<void()> bind_activation_copy(const program::OperationInstance& instance,
                                             const program::StepOp& step);
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
  std::vector<std::int32_t> ids_, targets_;  // the batch's, with those of prediction modules
  void* scratch_ = nullptr;
  std::int64_t scratch_bytes_ = 0;
  bool tracing_ = false;
  std::vector<Interval> intervals_;
  std::vector<float> no_load_;  // zeros for Region::ExpertLoad
};

}  // namespace meshplan::runtime
