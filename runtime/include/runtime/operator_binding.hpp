// From a program's compute operation to the kernel call that runs it. Used by the executor with the
// arena's memory, and by calibration with memory of its own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
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
  std::function<void()> bind(const program::OperationInstance& instance) {
    return bind(instance, program_.sizes);
  }
  /// With other values of the symbols than the planned ones.
  std::function<void()> bind(const program::OperationInstance& instance,
                             const models::SymbolValues& sizes);

  /// The call of a StepOp that computes: SquaredNorm, ClipCoefficient or OptimizerUpdate.
  /// Scalars are read when the call runs.
  std::function<void()> bind_step(const program::StepOp& step, const FlatMemory& memory);

  /// Rows of the instance's layer and micro-batch that go to each rank, then that come from each,
  /// since this step exchanged their sizes.
  const std::vector<std::int32_t>& exchanged_rows(
      const program::OperationInstance& instance) const {
    return exchanged_rows_[visit_of(instance)];
  }

  /// The largest workspace of all operations bound so far.
  std::int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  struct Operands;
  struct RopeTable {
    double base = 0.0;
    int size = 0;
    std::optional<models::RopeScaling> scaling;
    void* memory = nullptr;
  };

  std::function<void()> ready(const kernels::Operation& call);
  std::function<void()> bind_embedding(const Operands& o);
  std::function<void()> bind_position_embedding(const Operands& o);
  std::function<void()> bind_norm(const Operands& o);
  std::function<void()> bind_head_norm(const Operands& o);
  kernels::HeadRotation head_rotation(const Operands& o);
  std::function<void()> bind_layer_norm(const Operands& o);
  std::function<void()> bind_linear(const Operands& o);
  std::function<void()> bind_float8(const Operands& o);
  std::function<void()> bind_bias(const Operands& o);
  std::function<void()> bind_attention(const Operands& o);
  std::function<void()> bind_sinks_gradient(const Operands& o);
  /// Sinks of the heads that this rank attends with, or null.
  const void* own_sinks(const Operands& o) const;
  std::function<void()> bind_gathered_attention(const Operands& o);
  std::function<void()> bind_ring_attention(const Operands& o);
  std::function<void()> bind_document_attention(const Operands& o, std::int64_t keys);
  std::function<void()> bind_merge(const Operands& o);
  std::function<void()> bind_convert(const Operands& o);
  std::function<void()> bind_key_values(const Operands& o);
  std::function<void()> bind_chunk_order(const Operands& o);
  std::function<void()> bind_rope(const Operands& o);
  std::function<void()> bind_latent_heads(const Operands& o);
  std::function<void()> bind_activation(const Operands& o);
  std::function<void()> bind_gated_activation(const Operands& o);
  std::function<void()> bind_sigmoid_gate(const Operands& o);
  std::function<void()> bind_pointwise(const Operands& o);
  std::function<void()> bind_loss(const Operands& o);
  std::function<void()> bind_experts(const Operands& o);
  std::function<void()> bind_router(const Operands& o);
  std::function<void()> bind_router_forward(const Operands& o);
  std::function<void()> bind_router_input_grad(const Operands& o);
  std::function<void()> bind_router_load(const Operands& o);
  std::function<void()> bind_router_losses(const Operands& o);
  std::function<void()> bind_limit_choices(const Operands& o);
  kernels::SequenceCounts sequence_counts(const Operands& o, std::size_t load,
                                          std::int64_t tokens) const;
  std::function<void()> bind_dispatch_plan(const Operands& o);
  std::function<void()> bind_exchange_sizes(const Operands& o);
  std::function<void()> bind_dispatch(const Operands& o);
  std::function<void()> bind_regroup(const Operands& o);
  std::function<void()> bind_grouped_linear(const Operands& o);
  std::function<void()> bind_grouped_bias(const Operands& o);
  std::function<void()> bind_combine(const Operands& o);
  template <class Call, class SetRows>
  std::function<void()> of_rows(const Operands& o, std::size_t offsets, Call call,
                                SetRows set_rows);
  /// The visit of a layer and micro-batch.
  std::size_t visit_of(const program::OperationInstance& instance) const;
  template <class Call>
  std::function<void()> grouped(Call call, const std::int32_t* offsets);
  std::function<void()> bind_slice(const Operands& o);
  std::function<void()> bind_pool(const Operands& o);
  std::function<void()> bind_layout(const Operands& o);
  std::function<void()> bind_update(const program::StepOp& step, const FlatMemory& memory);
  /// Cosines and sines of all positions, made once for each rotation.
  const float* rope_table(const models::OpAttributes& attributes);
  /// Tokens of a whole sequence, and of this rank's part of one.
  std::int64_t seq_len() const { return program_.plan.workload.seq_len; }
  std::int64_t local_seq_len() const { return program_.sizes.tokens / program_.sizes.sequences; }
  std::function<void()> bind_document_order(const Operands& o);
  kernels::RowPositions row_positions(const Operands& o, std::int64_t first_row = 0) const;

  kernels::Backend& backend_;
  const program::Program& program_;
  RankPlace place_;
  Resolve resolve_;
  const float* gradient_scale_;
  RowsArrive rows_arrive_;
  std::vector<RopeTable> rope_tables_;
  std::vector<std::vector<std::int32_t>> exchanged_rows_;  // by visit
  std::vector<std::int64_t> routed_rows_;  // by visit: those of a balanced router, then what came
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace meshplan::runtime
