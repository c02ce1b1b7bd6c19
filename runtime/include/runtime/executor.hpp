// Executes a program: the only loop that runs training. It has no case per parallelism: the program
// says what to compute, what to communicate, in which order and who waits for whom.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "program/program.hpp"
#include "program/trace.hpp"
#include "runtime/arena.hpp"
#include "runtime/groups.hpp"
#include "runtime/operator_binding.hpp"

namespace meshplan::runtime {

/// Told what the rank is about to do, so that a hang can be named. Must be cheap.
class StatusSink {
 public:
  virtual ~StatusSink() = default;
  virtual void set(const char* status) noexcept = 0;
};

/// Rows of a step's micro-batches that this rank needs: ids and targets, each (microbatches, T).
struct StepBatch {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> targets;
};

/// What the step's optimizer update needs that changes from step to step.
struct StepSettings {
  int optimizer_step = 1;  // 1 at the first update
  double learning_rate = 0;
};

struct StepOutcome {
  double loss = 0;           // mean over the tokens of the global batch
  double gradient_norm = 0;  // before clipping; 0 for evaluation
};

class Executor {
 public:
  /// @param status  may be null
  Executor(const program::Program& program, kernels::Backend& backend, Arena& arena, Groups& groups,
           StatusSink* status);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs the loop body once. Collective over all ranks of the plan.
  StepOutcome run(const StepBatch& batch, const StepSettings& settings);

  /// Collects spans of the following runs, relative to `origin_s` of the monotonic clock.
  void start_trace(double origin_s);
  std::vector<program::Span> take_trace();

  std::int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  struct Bound;

  void bind();
  std::function<Handle()> bind_communication(const program::OperationInstance& instance);
  std::function<void()> bind_step_work(const program::StepOp& step);
  program::Span span_of(const program::OperationInstance& instance) const;
  std::string status_of(const program::OperationInstance& instance) const;
  void wait_for(std::size_t index);
  void load(const StepBatch& batch);

  const program::Program& program_;
  kernels::Backend& backend_;
  Arena& arena_;
  Groups& groups_;
  StatusSink* status_;
  std::unique_ptr<OperatorBinder> binder_;
  std::vector<Bound> bound_;
  const StepBatch* batch_ = nullptr;
  StepSettings settings_;
  void* scratch_ = nullptr;
  std::int64_t scratch_bytes_ = 0;
  std::optional<double> trace_origin_s_;
  std::vector<program::Span> spans_;
};

/// Seconds of the monotonic clock, which all processes of a host share.
double monotonic_seconds();

}  // namespace meshplan::runtime
