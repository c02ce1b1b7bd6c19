// The gated delta rule: a sequence's key heads are dealt out to threads, with the value heads that
// read them.
#include "core/error.hpp"
#include "device/loops.hpp"
#include "mixers/gated_delta_layout.hpp"
#include "mixers/operators.hpp"

namespace meshplan::kernels::cpu {

namespace {

void require_shape(const GatedDeltaShape& shape) {
  require_invariant(
      shape.key_heads > 0 && shape.value_heads > 0 && shape.key_size > 0 && shape.value_size > 0,
      "the gated delta rule has heads");
  require_invariant(shape.value_heads % shape.key_heads == 0,
                    "value heads are a multiple of key heads");
  require_invariant(shape.chunk_len > 0 && shape.chunk_len <= kMaxDeltaChunk,
                    "a chunk of the gated delta rule has 1 to 64 tokens");
}

/// Sums of the gradients of dt_bias and a_log: two for each value head of each sequence.
std::int64_t num_sums(const GatedDeltaShape& shape) {
  return round_up(2 * shape.num_sequences * shape.value_heads, kMaxLanes);
}

std::int64_t scratch_floats(const Context& context, const GatedDeltaForward& op) {
  return gated_delta_forward_layout(op.shape).size * context.num_threads;
}
std::int64_t scratch_floats(const Context& context, const GatedDeltaBackward& op) {
  return num_sums(op.shape) + gated_delta_backward_layout(op.shape).size * context.num_threads;
}

template <class Op, class Body>
void for_pairs(const Context& context, const Op& op, const Body& body) {
  require_float(op.dtype);
  require_float(op.decay_dtype);
  require_shape(op.shape);
  require_scratch(context, scratch_bytes(context, op));
  parallel_for(context.num_threads, op.shape.num_sequences * op.shape.key_heads, 1, body);
}

/// Adds up the sequences' sums, in order.
void sum_sequences(const GatedDeltaShape& shape, const float* sums, float* out, bool accumulate) {
  if (out == nullptr) return;
  for (std::int64_t head = 0; head < shape.value_heads; ++head) {
    float total = accumulate ? out[head] : 0.0F;
    for (std::int64_t sequence = 0; sequence < shape.num_sequences; ++sequence)
      total += sums[2 * (sequence * shape.value_heads + head)];
    out[head] = total;
  }
}

}  // namespace

std::int64_t scratch_bytes(const Context& context, const GatedDeltaForward& op) {
  return scratch_floats(context, op) * size_of(DType::F32);
}
std::int64_t scratch_bytes(const Context& context, const GatedDeltaBackward& op) {
  return scratch_floats(context, op) * size_of(DType::F32);
}

void run(const Context& context, const GatedDeltaForward& op) {
  const std::int64_t floats = gated_delta_forward_layout(op.shape).size;
  for_pairs(context, op, [&](Range pairs, int thread) {
    context.table.gated_delta_forward(op, pairs, context.thread_scratch(thread, floats));
  });
}

void run(const Context& context, const GatedDeltaBackward& op) {
  const std::int64_t floats = gated_delta_backward_layout(op.shape).size;
  float* sums = context.thread_scratch(0, 0);
  for_pairs(context, op, [&](Range pairs, int thread) {
    context.table.gated_delta_backward(op, pairs, sums + num_sums(op.shape) + thread * floats,
                                       sums);
  });
  sum_sequences(op.shape, sums, op.ddt_bias, op.accumulate);
  sum_sequences(op.shape, sums + 1, op.da_log, op.accumulate);
}

}  // namespace meshplan::kernels::cpu
