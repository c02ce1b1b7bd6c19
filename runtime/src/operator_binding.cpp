#include "runtime/operator_binding.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

using models::OpKind;
using program::Phase;

kernels::ActivationKind kernel_kind(models::ActivationKind kind) {
  switch (kind) {
    case models::ActivationKind::Silu:
      return kernels::ActivationKind::Silu;
    case models::ActivationKind::Gelu:
      return kernels::ActivationKind::Gelu;
    case models::ActivationKind::GeluTanh:
      return kernels::ActivationKind::GeluTanh;
    case models::ActivationKind::SquaredRelu:
      return kernels::ActivationKind::SquaredRelu;
    case models::ActivationKind::Relu:
      return kernels::ActivationKind::Relu;
    default:
      throw InvariantError("activation without a kernel; check(plan) must refuse it");
  }
}

}  // namespace

/// An instance with its operands' addresses, shapes and dtype.
struct OperatorBinder::Operands {
  const program::Program& program;
  const program::OperationInstance& instance;
  const program::Operation& operation;
  const program::ComputeOp& work;
  const Resolve& resolve;

  bool forward() const {
    return operation.phase == Phase::Forward || operation.phase == Phase::Recompute;
  }
  const program::Value& value(program::ValueId id) const {
    const auto& layer = program.layers[static_cast<std::size_t>(instance.layer)];
    return program.blocks[static_cast<std::size_t>(layer.block)]
        .values[static_cast<std::size_t>(id)];
  }
  template <class T = void>
  T* in(std::size_t i) const {
    return reinterpret_cast<T*>(resolve(instance, operation.inputs.at(i)));
  }
  void* optional_in(std::size_t i) const { return i < operation.inputs.size() ? in(i) : nullptr; }
  template <class T = void>
  T* out(std::size_t i) const {
    return reinterpret_cast<T*>(resolve(instance, operation.outputs.at(i)));
  }
  std::vector<std::int64_t> in_shape(std::size_t i) const {
    return program::local_shape(program, value(operation.inputs.at(i)));
  }
  std::vector<std::int64_t> out_shape(std::size_t i) const {
    return program::local_shape(program, value(operation.outputs.at(i)));
  }
  std::int64_t in_elements(std::size_t i) const {
    std::int64_t elements = 1;
    for (const std::int64_t size : in_shape(i)) elements *= size;
    return elements;
  }
  DType dtype() const { return program.plan.workload.precision; }
};

OperatorBinder::OperatorBinder(kernels::Backend& backend, const program::Program& program,
                               RankPlace place, Resolve resolve, const float* gradient_scale)
    : backend_(backend),
      program_(program),
      place_(place),
      resolve_(std::move(resolve)),
      gradient_scale_(gradient_scale) {}

OperatorBinder::~OperatorBinder() {
  for (const auto& [key, table] : rope_tables_) backend_.free(table);
}

template <class Call>
std::function<void()> OperatorBinder::ready(Call call) {
  scratch_bytes_ = std::max(scratch_bytes_, backend_.scratch_bytes(call));
  return [&backend = backend_, call] { backend.run(call); };
}

std::function<void()> OperatorBinder::bind(const program::OperationInstance& instance) {
  const program::Operation& operation = program::operation_of(program_, instance);
  const auto& work = std::get<program::ComputeOp>(operation.work);
  const Operands operands{program_, instance, operation, work, resolve_};
  switch (work.kind) {
    case OpKind::Embedding:
      return bind_embedding(operands);
    case OpKind::PositionEmbedding:
      return bind_position_embedding(operands);
    case OpKind::RmsNorm:
      return bind_norm(operands);
    case OpKind::LayerNorm:
      return bind_layer_norm(operands);
    case OpKind::Linear:
      return bind_linear(operands);
    case OpKind::BiasAdd:
      return bind_bias(operands);
    case OpKind::Attention:
      return bind_attention(operands);
    case OpKind::Rope:
      return bind_rope(operands);
    case OpKind::Activation:
      return bind_activation(operands);
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
    default:
      throw InvariantError(fmt::format("operation '{}' has no kernel", operation.name));
  }
}

std::function<void()> OperatorBinder::bind_embedding(const Operands& o) {
  const bool forward = o.forward();
  const std::int64_t rows = forward ? o.in_shape(1)[0] : o.out_shape(0)[0];
  const std::int64_t begin = place_.tp_rank * rows;
  if (forward)
    return ready(kernels::EmbeddingForward{.tokens = o.in_shape(0)[0],
                                           .size = o.in_shape(1)[1],
                                           .vocab_begin = begin,
                                           .vocab_end = begin + rows,
                                           .dtype = o.dtype(),
                                           .ids = o.in<const std::int32_t>(0),
                                           .weight = o.in(1),
                                           .out = o.out(0),
                                           .out_stride = o.in_shape(1)[1]});
  return ready(kernels::EmbeddingBackward{.tokens = o.in_shape(0)[0],
                                          .size = o.in_shape(0)[1],
                                          .vocab_begin = begin,
                                          .vocab_end = begin + rows,
                                          .dtype = o.dtype(),
                                          .ids = o.in<const std::int32_t>(1),
                                          .dout = o.in(0),
                                          .dout_stride = o.in_shape(0)[1],
                                          .dweight = o.out<float>(0),
                                          .accumulate = o.instance.accumulate});
}

std::function<void()> OperatorBinder::bind_position_embedding(const Operands& o) {
  const std::int64_t tokens = o.in_shape(0)[0];
  const std::int64_t size = o.in_shape(0)[1];
  const kernels::RowPositions positions{
      .seq_len = seq_len(), .first_row = o.work.tokens_sharded ? place_.tp_rank * tokens : 0};
  if (o.forward())
    return ready(kernels::PositionEmbeddingForward{.tokens = tokens,
                                                   .size = size,
                                                   .positions = positions,
                                                   .dtype = o.dtype(),
                                                   .x = o.in(0),
                                                   .x_stride = size,
                                                   .weight = o.in(1),
                                                   .out = o.out(0),
                                                   .out_stride = size});
  return ready(kernels::PositionEmbeddingBackward{.tokens = tokens,
                                                  .size = size,
                                                  .num_positions = o.out_shape(0)[0],
                                                  .positions = positions,
                                                  .dtype = o.dtype(),
                                                  .dout = o.in(0),
                                                  .dout_stride = size,
                                                  .dweight = o.out<float>(0),
                                                  .accumulate = o.instance.accumulate});
}

std::function<void()> OperatorBinder::bind_norm(const Operands& o) {
  const std::int64_t tokens = o.in_shape(0)[0];
  const std::int64_t size = o.in_shape(0)[1];
  if (o.forward())
    return ready(kernels::RmsNormForward{.tokens = tokens,
                                         .size = size,
                                         .epsilon = static_cast<float>(o.work.attributes.epsilon),
                                         .dtype = o.dtype(),
                                         .x = o.in(0),
                                         .x_stride = size,
                                         .weight = o.in(1),
                                         .y = o.out(0),
                                         .y_stride = size,
                                         .inv_rms = o.out<float>(1)});
  return ready(kernels::RmsNormBackward{.tokens = tokens,
                                        .size = size,
                                        .dtype = o.dtype(),
                                        .dy = o.in(0),
                                        .dy_stride = size,
                                        .x = o.in(1),
                                        .x_stride = size,
                                        .weight = o.in(2),
                                        .inv_rms = o.in<float>(3),
                                        .dx = o.out(0),
                                        .dx_stride = size,
                                        .residual = o.optional_in(4),
                                        .dweight = o.out<float>(1),
                                        .accumulate = o.instance.accumulate});
}

std::function<void()> OperatorBinder::bind_layer_norm(const Operands& o) {
  const std::int64_t tokens = o.in_shape(0)[0];
  const std::int64_t size = o.in_shape(0)[1];
  if (o.forward())
    return ready(kernels::LayerNormForward{.tokens = tokens,
                                           .size = size,
                                           .epsilon = static_cast<float>(o.work.attributes.epsilon),
                                           .dtype = o.dtype(),
                                           .x = o.in(0),
                                           .x_stride = size,
                                           .weight = o.in(1),
                                           .bias = o.in(2),
                                           .y = o.out(0),
                                           .y_stride = size,
                                           .mean = o.out<float>(1),
                                           .inv_std = o.out<float>(2)});
  return ready(kernels::LayerNormBackward{.tokens = tokens,
                                          .size = size,
                                          .dtype = o.dtype(),
                                          .dy = o.in(0),
                                          .dy_stride = size,
                                          .x = o.in(1),
                                          .x_stride = size,
                                          .weight = o.in(2),
                                          .mean = o.in<float>(3),
                                          .inv_std = o.in<float>(4),
                                          .dx = o.out(0),
                                          .dx_stride = size,
                                          .residual = o.optional_in(5),
                                          .dweight = o.out<float>(1),
                                          .dbias = o.out<float>(2),
                                          .accumulate = o.instance.accumulate});
}

std::function<void()> OperatorBinder::bind_linear(const Operands& o) {
  const bool weight_grad = o.operation.phase == Phase::WeightGrad;
  const std::vector<std::int64_t> weight = weight_grad ? o.out_shape(0) : o.in_shape(1);
  const kernels::LinearShape shape{
      .tokens = o.in_shape(0)[0], .in_features = weight[1], .out_features = weight[0]};
  if (o.forward())
    return ready(kernels::LinearForward{.shape = shape,
                                        .dtype = o.dtype(),
                                        .x = o.in(0),
                                        .x_stride = weight[1],
                                        .weight = o.in(1),
                                        .weight_stride = weight[1],
                                        .bias = o.operation.inputs.size() > 2 ? o.in(2) : nullptr,
                                        .y = o.out(0),
                                        .y_stride = weight[0]});
  if (!weight_grad)
    return ready(kernels::LinearInputGrad{.shape = shape,
                                          .dtype = o.dtype(),
                                          .dy = o.in(0),
                                          .dy_stride = weight[0],
                                          .weight = o.in(1),
                                          .weight_stride = weight[1],
                                          .dx = o.out(0),
                                          .dx_stride = weight[1]});
  return ready(
      kernels::LinearWeightGrad{.shape = shape,
                                .dtype = o.dtype(),
                                .dy = o.in(0),
                                .dy_stride = weight[0],
                                .x = o.in(1),
                                .x_stride = weight[1],
                                .dweight = o.out<float>(0),
                                .dweight_stride = weight[1],
                                .dbias = o.operation.outputs.size() > 1 ? o.out<float>(1) : nullptr,
                                .accumulate = o.instance.accumulate});
}

std::function<void()> OperatorBinder::bind_bias(const Operands& o) {
  const std::int64_t tokens = o.in_shape(0)[0];
  const std::int64_t size = o.in_shape(0)[1];
  if (o.forward())  // a bias is a table of positions with one row
    return ready(kernels::PositionEmbeddingForward{.tokens = tokens,
                                                   .size = size,
                                                   .positions = {.seq_len = 1},
                                                   .dtype = o.dtype(),
                                                   .x = o.in(0),
                                                   .x_stride = size,
                                                   .weight = o.in(1),
                                                   .out = o.out(0),
                                                   .out_stride = size});
  return ready(kernels::LinearWeightGrad{
      .shape = {.tokens = tokens, .in_features = size, .out_features = size},
      .dtype = o.dtype(),
      .dy = o.in(0),
      .dy_stride = size,
      .dbias = o.out<float>(0),
      .accumulate = o.instance.accumulate});
}

std::function<void()> OperatorBinder::bind_attention(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  const kernels::AttentionShape shape{.num_sequences = program_.sizes.sequences,
                                      .query_len = seq_len(),
                                      .key_len = seq_len(),
                                      .heads = a.heads,
                                      .kv_heads = a.kv_heads,
                                      .head_size = a.head_size,
                                      .causal = a.causal,
                                      .window = a.window,
                                      .scale = static_cast<float>(a.scale)};
  const std::int64_t element = size_of(o.dtype());
  const std::int64_t q_bytes = static_cast<std::int64_t>(a.heads) * a.head_size * element;
  const std::int64_t kv_bytes = static_cast<std::int64_t>(a.kv_heads) * a.head_size * element;
  const std::int64_t stride = static_cast<std::int64_t>(a.heads + 2 * a.kv_heads) * a.head_size;
  const std::int64_t o_stride = static_cast<std::int64_t>(a.heads) * a.head_size;
  if (o.forward()) {
    auto* qkv = o.in<std::byte>(0);
    return ready(kernels::AttentionForward{.shape = shape,
                                           .dtype = o.dtype(),
                                           .q = qkv,
                                           .q_stride = stride,
                                           .k = qkv + q_bytes,
                                           .v = qkv + q_bytes + kv_bytes,
                                           .kv_stride = stride,
                                           .o = o.out(0),
                                           .o_stride = o_stride,
                                           .lse = o.out<float>(1)});
  }
  auto* qkv = o.in<std::byte>(1);
  auto* gradient = o.out<std::byte>(0);
  return ready(kernels::AttentionBackward{.shape = shape,
                                          .dtype = o.dtype(),
                                          .q = qkv,
                                          .q_stride = stride,
                                          .k = qkv + q_bytes,
                                          .v = qkv + q_bytes + kv_bytes,
                                          .kv_stride = stride,
                                          .o = o.in(2),
                                          .o_stride = o_stride,
                                          .output_grad = o.in(0),
                                          .lse = o.in<float>(3),
                                          .dq = gradient,
                                          .dq_stride = stride,
                                          .dk = gradient + q_bytes,
                                          .dv = gradient + q_bytes + kv_bytes,
                                          .dkv_stride = stride});
}

std::function<void()> OperatorBinder::bind_rope(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  return ready(kernels::Rope{.tokens = o.in_shape(0)[0],
                             .heads = a.heads + a.kv_heads,
                             .head_size = a.head_size,
                             .rope_size = a.rope_size,
                             .positions = {.seq_len = seq_len()},
                             .dtype = o.dtype(),
                             .x = o.out(0),
                             .x_stride = o.in_shape(0)[1],
                             .table = rope_table(a.rope_base, a.rope_size),
                             .inverse = !o.forward()});
}

const float* OperatorBinder::rope_table(double base, int size) {
  const auto [entry, fresh] = rope_tables_.try_emplace({base, size}, nullptr);
  if (fresh) {
    std::vector<float> table(static_cast<std::size_t>(seq_len() * size));
    kernels::build_rope_table(table, seq_len(), size, base);
    const auto bytes = static_cast<std::int64_t>(table.size() * sizeof(float));
    entry->second = backend_.allocate(bytes);
    backend_.copy_to_device(entry->second, table.data(), bytes);
  }
  return static_cast<const float*>(entry->second);
}

std::function<void()> OperatorBinder::bind_activation(const Operands& o) {
  const kernels::ActivationKind kind = kernel_kind(o.work.attributes.activation);
  if (o.forward())
    return ready(kernels::ActivationForward{
        .kind = kind, .count = o.in_elements(0), .dtype = o.dtype(), .x = o.in(0), .y = o.out(0)});
  return ready(kernels::ActivationBackward{.kind = kind,
                                           .count = o.in_elements(0),
                                           .dtype = o.dtype(),
                                           .dy = o.in(0),
                                           .x = o.in(1),
                                           .dx = o.out(0)});
}

std::function<void()> OperatorBinder::bind_gated_activation(const Operands& o) {
  const kernels::ActivationKind kind = kernel_kind(o.work.attributes.activation);
  if (o.forward()) {
    const std::int64_t size = o.out_shape(0)[1];
    return ready(kernels::GatedActivationForward{.kind = kind,
                                                 .tokens = o.in_shape(0)[0],
                                                 .size = size,
                                                 .dtype = o.dtype(),
                                                 .x = o.in(0),
                                                 .x_stride = 2 * size,
                                                 .y = o.out(0),
                                                 .y_stride = size});
  }
  const std::int64_t size = o.in_shape(0)[1];
  return ready(kernels::GatedActivationBackward{.kind = kind,
                                                .tokens = o.in_shape(0)[0],
                                                .size = size,
                                                .dtype = o.dtype(),
                                                .dy = o.in(0),
                                                .dy_stride = size,
                                                .x = o.in(1),
                                                .x_stride = 2 * size,
                                                .dx = o.out(0),
                                                .dx_stride = 2 * size});
}

std::function<void()> OperatorBinder::bind_pointwise(const Operands& o) {
  if (o.work.kind == OpKind::Scale)
    return ready(kernels::Scale{.count = o.in_elements(0),
                                .dtype = o.dtype(),
                                .factor = static_cast<float>(o.work.attributes.scale),
                                .x = o.in(0),
                                .y = o.out(0)});
  if (o.work.kind == OpKind::Add)
    return ready(kernels::Add{.count = o.in_elements(0),
                              .dtype = o.dtype(),
                              .a = o.in(0),
                              .b = o.in(1),
                              .sum = o.out(0)});
  return ready(kernels::Accumulate{.count = o.in_elements(0),
                                   .sum_dtype = o.dtype(),
                                   .sum = o.in(0),
                                   .value_dtype = o.dtype(),
                                   .value = o.in(1)});
}

std::function<void()> OperatorBinder::bind_loss(const Operands& o) {
  if (o.work.kind == OpKind::CrossEntropyCombine)
    return ready(kernels::CrossEntropyCombine{.tokens = o.in_shape(1)[0],
                                              .num_shards = program_.plan.parallel.tp,
                                              .stats = o.in<float>(0),
                                              .targets = o.in<const std::int32_t>(1),
                                              .loss = o.out<float>(0),
                                              .lse = o.out<float>(1)});
  if (o.work.kind == OpKind::SumLoss)
    return ready(kernels::SumLoss{.tokens = o.in_shape(0)[0],
                                  .loss = o.in<float>(0),
                                  .sum = o.out<double>(0),
                                  .accumulate = true});
  const std::int64_t tokens = o.in_shape(0)[0];
  const std::int64_t columns = o.in_shape(0)[1];
  const std::int64_t begin = place_.tp_rank * columns;
  const std::int64_t valid =
      std::clamp<std::int64_t>(program_.plan.model.vocab_size - begin, 0, columns);
  if (o.work.kind == OpKind::CrossEntropyLocal)
    return ready(kernels::CrossEntropyLocal{.tokens = tokens,
                                            .columns = columns,
                                            .valid = valid,
                                            .vocab_begin = begin,
                                            .dtype = o.dtype(),
                                            .logits = o.in(0),
                                            .logits_stride = columns,
                                            .targets = o.in<const std::int32_t>(1),
                                            .stats = o.out<float>(0)});
  return ready(kernels::CrossEntropyBackward{.tokens = tokens,
                                             .columns = columns,
                                             .valid = valid,
                                             .vocab_begin = begin,
                                             .dtype = o.dtype(),
                                             .logits = o.in(0),
                                             .dlogits = o.out(0),
                                             .logits_stride = columns,
                                             .targets = o.in<const std::int32_t>(1),
                                             .lse = o.in<float>(2),
                                             .scale = gradient_scale_});
}

std::function<void()> OperatorBinder::bind_step(const program::StepOp& step,
                                                const FlatMemory& memory,
                                                const StepSettings& settings) {
  if (step.work == program::StepWork::SquaredNorm)
    return ready(kernels::SquaredNorm{.count = step.range.size(),
                                      .x = memory.gradients,
                                      .sum = memory.squared_norm,
                                      .accumulate = true});
  if (step.work == program::StepWork::ClipCoefficient) {
    constexpr float kNoClipping = 3.0e38F;  // near the largest fp32: the coefficient is 1
    const double clip = program_.plan.workload.optimizer.clip_norm;
    return ready(
        kernels::ClipCoefficient{.sum_of_squares = memory.squared_norm,
                                 .max_norm = clip > 0 ? static_cast<float>(clip) : kNoClipping,
                                 .coefficient = memory.clip_coefficient,
                                 .norm = memory.gradient_norm});
  }
  require_invariant(step.work == program::StepWork::OptimizerUpdate, "step work without a kernel");
  return bind_update(step, memory, settings);
}

std::function<void()> OperatorBinder::bind_update(const program::StepOp& step,
                                                  const FlatMemory& memory,
                                                  const StepSettings& settings) {
  const program::OptimizerConfig& config = program_.plan.workload.optimizer;
  const auto decay = static_cast<float>(step.weight_decay ? config.weight_decay : 0.0);
  if (config.kind == program::OptimizerKind::Sgd) {
    kernels::SgdStep call{.count = step.range.size(),
                          .momentum = static_cast<float>(config.momentum),
                          .weight_decay = decay,
                          .master = memory.master,
                          .velocity = memory.moment1,
                          .gradient = memory.gradients,
                          .gradient_scale = memory.clip_coefficient,
                          .weight = memory.weights,
                          .weight_dtype = program_.plan.workload.precision};
    return [&backend = backend_, &settings, call]() mutable {
      call.learning_rate = static_cast<float>(settings.learning_rate);
      backend.run(call);
    };
  }
  kernels::AdamStep call{.count = step.range.size(),
                         .beta1 = static_cast<float>(config.beta1),
                         .beta2 = static_cast<float>(config.beta2),
                         .epsilon = static_cast<float>(config.epsilon),
                         .weight_decay = decay,
                         .decoupled = config.kind == program::OptimizerKind::AdamW,
                         .master = memory.master,
                         .m = memory.moment1,
                         .v = memory.moment2,
                         .gradient = memory.gradients,
                         .gradient_scale = memory.clip_coefficient,
                         .weight = memory.weights,
                         .weight_dtype = program_.plan.workload.precision};
  return [&backend = backend_, &settings, call]() mutable {
    call.step = settings.optimizer_step;
    call.learning_rate = static_cast<float>(settings.learning_rate);
    backend.run(call);
  };
}

}  // namespace meshplan::runtime
