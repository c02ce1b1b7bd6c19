// The RMS norm of one head after the other.
#include <cstddef>

#include "elementwise/operators.hpp"
#include "embeddings/operators.hpp"
#include "norms/operators.hpp"

namespace meshplan::kernels::cpu {

namespace {

/// The norm of one head of every token.
RmsNormForward part_of(const HeadRmsNormForward& op, std::int64_t head) {
  const auto& [tokens, heads, kv_heads, size] = op.shape;
  const std::int64_t offset = head * size * size_of(op.dtype);
  return {.tokens = tokens,
          .size = size,
          .epsilon = op.epsilon,
          .dtype = op.dtype,
          .x = static_cast<const std::byte*>(op.x) + offset,
          .x_stride = op.x_stride,
          .weight = head < heads ? op.q_weight : op.k_weight,
          .y = static_cast<std::byte*>(op.y) + offset,
          .y_stride = op.x_stride,
          .inv_rms = op.inv_rms + head * tokens};
}

RmsNormBackward part_of(const HeadRmsNormBackward& op, std::int64_t head) {
  const auto& [tokens, heads, kv_heads, size] = op.shape;
  const std::int64_t offset = head * size * size_of(op.dtype);
  std::byte* gradient = static_cast<std::byte*>(op.gradient) + offset;
  return {.tokens = tokens,
          .size = size,
          .dtype = op.dtype,
          .dy = gradient,
          .dy_stride = op.gradient_stride,
          .x = static_cast<const std::byte*>(op.x) + offset,
          .x_stride = op.x_stride,
          .weight = head < heads ? op.q_weight : op.k_weight,
          .inv_rms = op.inv_rms + head * tokens,
          .dx = gradient,
          .dx_stride = op.gradient_stride,
          .dweight = head < heads ? op.dq_weight : op.dk_weight,
          .accumulate = op.accumulate || (head != 0 && head != heads)};
}

/// The rotation of the query and key heads of `x`.
Rope rotation_of(const HeadRmsNormShape& shape, const HeadRotation& rotation, DType dtype, void* x,
                 std::int64_t stride) {
  return {.tokens = shape.tokens,
          .heads = static_cast<int>(shape.heads + shape.kv_heads),
          .head_size = static_cast<int>(shape.head_size),
          .rope_size = rotation.rope_size,
          .positions = rotation.positions,
          .dtype = dtype,
          .x = x,
          .x_stride = stride,
          .table = rotation.table};
}

}  // namespace

void run(const Context& context, const HeadRmsNormForward& op) {
  const auto& [tokens, heads, kv_heads, size] = op.shape;
  for (std::int64_t head = 0; head < heads + kv_heads; ++head) run(context, part_of(op, head));
  const std::int64_t element = size_of(op.dtype);
  const std::int64_t values = (heads + kv_heads) * size * element;
  run(context, CopyRows{.rows = tokens,
                        .row_bytes = kv_heads * size * element,
                        .x = static_cast<const std::byte*>(op.x) + values,
                        .x_stride_bytes = op.x_stride * element,
                        .y = static_cast<std::byte*>(op.y) + values,
                        .y_stride_bytes = op.x_stride * element});
  if (op.rotation.table != nullptr)
    run(context, rotation_of(op.shape, op.rotation, op.dtype, op.y, op.x_stride));
}

void run(const Context& context, const HeadRmsNormBackward& op) {
  if (op.rotation.table != nullptr) {
    Rope back = rotation_of(op.shape, op.rotation, op.dtype, op.gradient, op.gradient_stride);
    back.inverse = true;
    run(context, back);
  }
  for (std::int64_t head = 0; head < op.shape.heads + op.shape.kv_heads; ++head) {
    // dy becomes dx in place, so the weight's gradient comes first.
    RmsNormBackward weight = part_of(op, head);
    weight.dx = nullptr;
    if (weight.dweight != nullptr) run(context, weight);
    RmsNormBackward input = part_of(op, head);
    input.dweight = nullptr;
    run(context, input);
  }
}

}  // namespace meshplan::kernels::cpu
