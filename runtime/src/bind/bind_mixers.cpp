// Linear attention, Mamba 2, and the convolutions and norms around them. Rows are whole: operands
// have no strides of their own.
#include "bind/bound_operands.hpp"
#include "core/error.hpp"
#include "kernels/mixers/gated_delta.hpp"
#include "kernels/mixers/gated_rms_norm.hpp"
#include "kernels/mixers/short_convolution.hpp"
#include "kernels/mixers/ssd.hpp"

namespace meshplan::runtime {

std::function<void()> OperatorBinder::Body::bind_short_convolution(const Operands& o) {
  const std::int64_t width = o.in_shape(0)[1];
  const std::size_t weight = o.forward() ? 1 : 2;
  const bool has_bias = o.operation.inputs.size() > weight + (o.work.documents ? 2 : 1);
  const kernels::ShortConvolutionShape shape{
      .tokens = o.in_shape(0)[0],
      .seq_len = local_seq_len(),
      .channels = width,
      .taps = static_cast<int>(o.in_shape(weight)[1]),
      .silu = o.work.attributes.activation == models::ActivationKind::Silu};
  const void* bias = has_bias ? o.in(weight + 1) : nullptr;
  if (o.forward())
    return ready(kernels::ShortConvolutionForward{.shape = shape,
                                                  .dtype = o.dtype(),
                                                  .x = o.in(0),
                                                  .x_stride = width,
                                                  .weight = o.in(weight),
                                                  .bias = bias,
                                                  .positions = o.of_documents(),
                                                  .y = o.out(0),
                                                  .y_stride = width});
  return ready(
      kernels::ShortConvolutionBackward{.shape = shape,
                                        .dtype = o.dtype(),
                                        .dy = o.in(0),
                                        .dy_stride = width,
                                        .x = o.in(1),
                                        .x_stride = width,
                                        .weight = o.in(weight),
                                        .bias = bias,
                                        .positions = o.of_documents(),
                                        .dx = o.out(0),
                                        .dx_stride = width,
                                        .dweight = o.gradient_of(weight),
                                        .dbias = has_bias ? o.gradient_of(weight + 1) : nullptr,
                                        .accumulate = o.instance.accumulate});
}

std::function<void()> OperatorBinder::Body::bind_gated_norm(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  const std::int64_t width = o.in_shape(0)[1];
  const std::size_t weight = o.forward() ? 2 : 3;
  require_invariant(a.activation == models::ActivationKind::Silu,
                    "a gated norm without a kernel; check(plan) must refuse it");
  const kernels::GatedRmsNormShape shape{
      .tokens = o.in_shape(0)[0],
      .groups = width / a.norm_group,
      .size = a.norm_group,
      .order = a.gate_first ? kernels::GateOrder::GateThenNorm : kernels::GateOrder::NormThenGate,
      .shared_weight = o.work.split == models::Split::None};
  if (o.forward())
    return ready(kernels::GatedRmsNormForward{.shape = shape,
                                              .epsilon = static_cast<float>(a.epsilon),
                                              .dtype = o.dtype(),
                                              .x = o.in(0),
                                              .x_stride = width,
                                              .z = o.in(1),
                                              .z_stride = width,
                                              .weight = o.in(weight),
                                              .y = o.out(0),
                                              .y_stride = width,
                                              .inv_rms = o.out<float>(1)});
  return ready(kernels::GatedRmsNormBackward{.shape = shape,
                                             .dtype = o.dtype(),
                                             .dy = o.in(0),
                                             .dy_stride = width,
                                             .x = o.in(1),
                                             .x_stride = width,
                                             .z = o.in(2),
                                             .z_stride = width,
                                             .weight = o.in(weight),
                                             .inv_rms = o.in<float>(4),
                                             .dx = o.out(0),
                                             .dx_stride = width,
                                             .dz = o.out(1),
                                             .dz_stride = width,
                                             .dweight = o.gradient_of(weight),
                                             .accumulate = o.instance.accumulate});
}

std::function<void()> OperatorBinder::Body::bind_gated_delta(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  const std::size_t first = o.forward() ? 0 : 1;  // behind the output's gradient
  const std::int64_t width = o.in_shape(first)[1], pairs = o.in_shape(first + 1)[1];
  const std::int64_t values = std::int64_t{a.heads} * a.value_head_size;
  const kernels::GatedDeltaShape shape{.num_sequences = o.sizes.sequences,
                                       .seq_len = local_seq_len(),
                                       .key_heads = a.kv_heads,
                                       .value_heads = a.heads,
                                       .key_size = a.head_size,
                                       .value_size = a.value_head_size,
                                       .chunk_len = a.chunk};
  if (o.forward())
    return ready(kernels::GatedDeltaForward{.shape = shape,
                                            .dtype = o.dtype(),
                                            .qkv = o.in(0),
                                            .qkv_stride = width,
                                            .ba = o.in(1),
                                            .ba_stride = pairs,
                                            .decay_dtype = o.dtype(),
                                            .dt_bias = o.in(2),
                                            .a_log = o.in(3),
                                            .positions = o.of_documents(),
                                            .o = o.out(0),
                                            .o_stride = values,
                                            .states = o.out<float>(1)});
  return ready(kernels::GatedDeltaBackward{.shape = shape,
                                           .dtype = o.dtype(),
                                           .output_grad = o.in(0),
                                           .output_grad_stride = values,
                                           .qkv = o.in(1),
                                           .qkv_stride = width,
                                           .ba = o.in(2),
                                           .ba_stride = pairs,
                                           .decay_dtype = o.dtype(),
                                           .dt_bias = o.in(3),
                                           .a_log = o.in(4),
                                           .positions = o.of_documents(),
                                           .states = o.in<float>(5),
                                           .dqkv = o.out(0),
                                           .dqkv_stride = width,
                                           .dba = o.out(1),
                                           .dba_stride = pairs,
                                           .ddt_bias = o.gradient_of(3),
                                           .da_log = o.gradient_of(4),
                                           .accumulate = o.instance.accumulate});
}

std::function<void()> OperatorBinder::Body::bind_state_space(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  const std::size_t first = o.forward() ? 0 : 1;
  const std::int64_t width = o.in_shape(first)[1];
  const std::int64_t inner = std::int64_t{a.heads} * a.value_head_size;
  const kernels::SsdShape shape{.num_sequences = o.sizes.sequences,
                                .seq_len = local_seq_len(),
                                .heads = a.heads,
                                .head_size = a.value_head_size,
                                .groups = a.kv_heads,
                                .state_size = a.head_size,
                                .chunk_size = a.chunk};
  if (o.forward())
    return ready(kernels::SsdForward{.shape = shape,
                                     .dtype = o.dtype(),
                                     .xbc = o.in(0),
                                     .xbc_stride = width,
                                     .dt = o.in(1),
                                     .dt_stride = a.heads,
                                     .a_log = o.in(2),
                                     .d = o.in(3),
                                     .dt_bias = o.in(4),
                                     .positions = o.of_documents(),
                                     .y = o.out(0),
                                     .y_stride = inner,
                                     .states = o.out<float>(1)});
  return ready(kernels::SsdBackward{.shape = shape,
                                    .dtype = o.dtype(),
                                    .dy = o.in(0),
                                    .dy_stride = inner,
                                    .xbc = o.in(1),
                                    .xbc_stride = width,
                                    .dt = o.in(2),
                                    .dt_stride = a.heads,
                                    .a_log = o.in(3),
                                    .d = o.in(4),
                                    .dt_bias = o.in(5),
                                    .positions = o.of_documents(),
                                    .states = o.in<float>(6),
                                    .dxbc = o.out(0),
                                    .dxbc_stride = width,
                                    .ddt = o.out(1),
                                    .ddt_stride = a.heads,
                                    .da_log = o.gradient_of(3),
                                    .dd = o.gradient_of(4),
                                    .ddt_bias = o.gradient_of(5),
                                    .accumulate = o.instance.accumulate});
}

}  // namespace meshplan::runtime
