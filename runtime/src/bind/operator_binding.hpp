// From a program's compute operation to the kernel call that runs it. Used by the executor with the
// arena's memory, and by calibration with memory of its own.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/backend.hpp"
#include "program/program.hpp"

namespace meshplan::runtime {

/// What a compute operation must know about its rank besides its program.
struct RankPlace {
  int tp_rank = 0;
  program::Coordinates coordinates;
};

/// Where an operand of an operation lies.
using Resolve = std::function<std::byte*(const program::OperationInstance&, program::ValueId)>;

/// Told, when the ranks have exchanged how many rows they send, how many come to the experts here.
using RowsArrive = std::function<void(const program::OperationInstance&, std::int64_t rows)>;

/// Flat ranges of a step operation, and the scalars that it reads or writes. `weights` is null
/// where the master weights are the weights.
struct FlatMemory {
  float* master = nullptr;
  void* weights = nullptr;
  float* gradients = nullptr;
  float* moment1 = nullptr;
  float* moment2 = nullptr;
  double* squared_norm = nullptr;
  float* clip_coefficient = nullptr;
  float* gradient_norm = nullptr;
  const float* mean_scale = nullptr;   // ClipCoefficient: the gradient scale without a loss scale
  const float* expert_load = nullptr;  // BalanceExperts: of its layer
  const float* learning_rate = nullptr;
  const std::int64_t* optimizer_step = nullptr;
};

/// Binds operations once, so that running a step only calls kernels. Owns the rotation tables.
class OperatorBinder {
 public:
  /// @param gradient_scale  one fp32 number, read when the loss gradient runs
  /// @param rows_arrive  may be empty
  OperatorBinder(kernels::Backend& backend, const program::Program& program, RankPlace place,
                 Resolve resolve, const float* gradient_scale, RowsArrive rows_arrive = {});
  ~OperatorBinder();
  OperatorBinder(const OperatorBinder&) = delete;
  OperatorBinder& operator=(const OperatorBinder&) = delete;

  /// The call that runs this instance of a ComputeOp.
  /// @throws InvariantError for an operation without a kernel
  std::function<void()> bind(const program::OperationInstance& instance);
  /// With other values of the symbols than the planned ones.
  std::function<void()> bind(const program::OperationInstance& instance,
                             const models::SymbolValues& sizes);

  /// The call of a StepOp that computes: SquaredNorm, ClipCoefficient or OptimizerUpdate.
  /// Scalars are read when the call runs.
  std::function<void()> bind_step(const program::StepOp& step, const FlatMemory& memory);

  /// Rows of the instance's layer and micro-batch that go to each rank of the group, then that come
  /// from each, since this step exchanged their sizes.
  const std::vector<std::int32_t>& exchanged_rows(const program::OperationInstance& instance,
                                                  program::Group group) const;

  /// The largest workspace of all operations bound so far.
  std::int64_t scratch_bytes() const;

 private:
  class Body;  // binder_body.hpp
  std::unique_ptr<Body> body_;
};

}  // namespace meshplan::runtime
