#include "bind/operator_binding.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "bind/bound_operands.hpp"
#include "core/error.hpp"
#include "program/cost/cost.hpp"

namespace meshplan::runtime {

using program::ComputeKind;

OperatorBinder::Body::Body(kernels::Backend& backend, const program::Program& program,
                           RankPlace place, Resolve resolve, const float* gradient_scale,
                           RowsArrive rows_arrive)
    : backend_(backend),
      program_(program),
      place_(place),
      resolve_(std::move(resolve)),
      gradient_scale_(gradient_scale),
      rows_arrive_(std::move(rows_arrive)),
      exchanged_rows_(2 * program.layers.size() *
                      static_cast<std::size_t>(program.plan.num_microbatches())),
      routed_rows_(
          program.layers.size() * static_cast<std::size_t>(program.plan.num_microbatches()),
          std::min(program.sizes.routed_tokens, program::balanced_rows(program.plan))),
      forwarded_tokens_(routed_rows_.size(), program::busiest_forwarded(program.plan)) {}

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
    case ComputeKind::Embedding:
      return bind_embedding(operands);
    case ComputeKind::PositionEmbedding:
      return bind_position_embedding(operands);
    case ComputeKind::RmsNorm:
      return bind_norm(operands);
    case ComputeKind::HeadRmsNorm:
      return bind_head_norm(operands);
    case ComputeKind::LayerNorm:
      return bind_layer_norm(operands);
    case ComputeKind::Linear:
      return bind_linear(operands);
    case ComputeKind::Quantize:
    case ComputeKind::ScaledLinear:
      return bind_float8(operands);
    case ComputeKind::BiasAdd:
      return bind_bias(operands);
    case ComputeKind::Attention:
      return bind_attention(operands);
    case ComputeKind::MergeAttention:
      return bind_merge(operands);
    case ComputeKind::Convert:
      return bind_convert(operands);
    case ComputeKind::KeyValues:
      return bind_key_values(operands);
    case ComputeKind::OrderChunks:
      return bind_chunk_order(operands);
    case ComputeKind::Rope:
      return bind_rope(operands);
    case ComputeKind::LatentHeads:
      return bind_latent_heads(operands);
    case ComputeKind::Activation:
      return bind_activation(operands);
    case ComputeKind::SigmoidGate:
      return bind_sigmoid_gate(operands);
    case ComputeKind::GatedActivation:
      return bind_gated_activation(operands);
    case ComputeKind::Scale:
    case ComputeKind::Add:
    case ComputeKind::Accumulate:
      return bind_pointwise(operands);
    case ComputeKind::CrossEntropy:
    case ComputeKind::CrossEntropyLocal:
    case ComputeKind::CrossEntropyCombine:
    case ComputeKind::SumLoss:
      return bind_loss(operands);
    case ComputeKind::Router:
    case ComputeKind::RouterLoad:
    case ComputeKind::SequenceLoad:
    case ComputeKind::RouterLosses:
    case ComputeKind::LimitChoices:
    case ComputeKind::DispatchPlan:
    case ComputeKind::ExchangeSizes:
    case ComputeKind::Dispatch:
    case ComputeKind::RegroupRows:
    case ComputeKind::GroupedLinear:
    case ComputeKind::Combine:
    case ComputeKind::NodeChoices:
    case ComputeKind::NodeRouting:
    case ComputeKind::SumNodes:
    case ComputeKind::PackRows:
    case ComputeKind::UnpackRows:
      return bind_experts(operands);
    case ComputeKind::Slice:
      return bind_parts(operands, /*divide=*/operands.forward());
    case ComputeKind::Concat:
      return bind_parts(operands, /*divide=*/!operands.forward());
    case ComputeKind::Pool:
      return bind_pool(operands);
    case ComputeKind::ShortConvolution:
      return bind_short_convolution(operands);
    case ComputeKind::GatedNorm:
      return bind_gated_norm(operands);
    case ComputeKind::LinearAttention:
      return bind_gated_delta(operands);
    case ComputeKind::StateSpace:
      return bind_state_space(operands);
    case ComputeKind::SelectKeys:
      return bind_select_keys(operands);
    case ComputeKind::SparseAttention:
      return bind_sparse_attention(operands);
    case ComputeKind::IndexerLoss:
      return bind_indexer_loss(operands);
    case ComputeKind::SliceRows:
    case ComputeKind::SliceColumns:
    case ComputeKind::PackColumns:
    case ComputeKind::UnpackColumns:
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
    const program::OperationInstance& instance, program::Group group) const {
  return body_->exchanged_rows(instance, group);
}

std::int64_t OperatorBinder::scratch_bytes() const {
  return body_->scratch_bytes();
}

}  // namespace meshplan::runtime
