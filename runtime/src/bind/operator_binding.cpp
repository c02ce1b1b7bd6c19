#include "bind/operator_binding.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "bind/bound_operands.hpp"
#include "core/error.hpp"
#include "program/cost/cost.hpp"

namespace meshplan::runtime {

using OpKind = program::ComputeKind;

OperatorBinder::Body::Body(kernels::Backend& backend, const program::Program& program,
                           RankPlace place, Resolve resolve, const float* gradient_scale,
                           RowsArrive rows_arrive)
    : backend_(backend),
      program_(program),
      place_(place),
      resolve_(std::move(resolve)),
      gradient_scale_(gradient_scale),
      rows_arrive_(std::move(rows_arrive)),
      exchanged_rows_(program.layers.size() *
                      static_cast<std::size_t>(program.plan.num_microbatches())),
      routed_rows_(
          program.layers.size() * static_cast<std::size_t>(program.plan.num_microbatches()),
          std::min(program.sizes.routed_tokens, program::balanced_rows(program.plan))) {}

OperatorBinder::Body::~Body() {
  for (const RopeTable& table : rope_tables_) backend_.free(table.memory);
}

std::function<void()> OperatorBinder::Body::ready(const kernels::Operation& call) {
  scratch_bytes_ = std::max(scratch_bytes_, backend_.scratch_bytes(call));
  return [&backend = backend_, call] { backend.run(call); };
}

std::function<void()> OperatorBinder::Body::bind(const program::OperationInstance& instance,
                                                 const models::SymbolValues& sizes) {
  const program::Operation& operation = program::operation_of(program_, instance);
  const auto& work = std::get<program::ComputeOp>(operation.work);
  const Operands operands{program_, sizes, instance, operation, work, resolve_};
  switch (work.kind) {
    case OpKind::Embedding:
      return bind_embedding(operands);
    case OpKind::PositionEmbedding:
      return bind_position_embedding(operands);
    case OpKind::RmsNorm:
      return bind_norm(operands);
    case OpKind::HeadRmsNorm:
      return bind_head_norm(operands);
    case OpKind::LayerNorm:
      return bind_layer_norm(operands);
    case OpKind::Linear:
      return bind_linear(operands);
    case OpKind::Quantize:
    case OpKind::ScaledLinear:
      return bind_float8(operands);
    case OpKind::BiasAdd:
      return bind_bias(operands);
    case OpKind::Attention:
      return bind_attention(operands);
    case OpKind::MergeAttention:
      return bind_merge(operands);
    case OpKind::Convert:
      return bind_convert(operands);
    case OpKind::KeyValues:
      return bind_key_values(operands);
    case OpKind::OrderChunks:
      return bind_chunk_order(operands);
    case OpKind::Rope:
      return bind_rope(operands);
    case OpKind::LatentHeads:
      return bind_latent_heads(operands);
    case OpKind::Activation:
      return bind_activation(operands);
    case OpKind::SigmoidGate:
      return bind_sigmoid_gate(operands);
    case OpKind::GatedActivation:
      return bind_gated_activation(operands);
    case OpKind::Scale:
    case OpKind::Add:
    case OpKind::Accumulate:
      return bind_pointwise(operands);
    case OpKind::CrossEntropy:
    case OpKind::CrossEntropyLocal:
    case OpKind::CrossEntropyCombine:
    case OpKind::SumLoss:
      return bind_loss(operands);
    case OpKind::Router:
    case OpKind::RouterLoad:
    case OpKind::SequenceLoad:
    case OpKind::RouterLosses:
    case OpKind::LimitChoices:
    case OpKind::DispatchPlan:
    case OpKind::ExchangeSizes:
    case OpKind::Dispatch:
    case OpKind::RegroupRows:
    case OpKind::GroupedLinear:
    case OpKind::Combine:
      return bind_experts(operands);
    case OpKind::Slice:
      return bind_slice(operands);
    case OpKind::Pool:
      return bind_pool(operands);
    case OpKind::SliceRows:
    case OpKind::SliceColumns:
    case OpKind::PackColumns:
    case OpKind::UnpackColumns:
      return bind_layout(operands);
    default:
      throw InvariantError(fmt::format("operation '{}' has no kernel", operation.name));
  }
}

OperatorBinder::OperatorBinder(kernels::Backend& backend, const program::Program& program,
                               RankPlace place, Resolve resolve, const float* gradient_scale,
                               RowsArrive rows_arrive)
    : body_(std::make_unique<Body>(backend, program, place, std::move(resolve), gradient_scale,
                                   std::move(rows_arrive))) {}

OperatorBinder::~OperatorBinder() = default;

std::function<void()> OperatorBinder::bind(const program::OperationInstance& instance) {
  return body_->bind(instance, body_->program().sizes);
}

std::function<void()> OperatorBinder::bind(const program::OperationInstance& instance,
                                           const models::SymbolValues& sizes) {
  return body_->bind(instance, sizes);
}

std::function<void()> OperatorBinder::bind_step(const program::StepOp& step,
                                                const FlatMemory& memory) {
  return body_->bind_step(step, memory);
}

const std::vector<std::int32_t>& OperatorBinder::exchanged_rows(
    const program::OperationInstance& instance) const {
  return body_->exchanged_rows(instance);
}

std::int64_t OperatorBinder::scratch_bytes() const {
  return body_->scratch_bytes();
}

}  // namespace meshplan::runtime
