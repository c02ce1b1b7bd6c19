#include "core/error.hpp"
#include "device/loops.hpp"
#include "device/padding.hpp"
#include "mixers/operators.hpp"
#include "mixers/ssd_layout.hpp"

namespace meshplan::kernels::cpu {

namespace {

constexpr std::int64_t kLine = 64;  // bytes

std::int64_t bc_grads_bytes(const SsdShape& shape) {
  return round_up(shape.tokens() * shape.groups * ssd_parts_per_group(shape) * 2 *
                      shape.state_size * size_of(DType::F32),
                  kLine);
}

std::int64_t head_sums_bytes(const SsdShape& shape) {
  return round_up(
      shape.num_sequences * shape.heads * kSsdHeadSums * static_cast<std::int64_t>(sizeof(double)),
      kLine);
}

void require_shape(const SsdShape& shape, DType dtype) {
  require_float(dtype);
  require_invariant(shape.groups > 0 && shape.heads % shape.groups == 0,
                    "heads of a state-space mixer are a multiple of its groups");
  require_invariant(shape.chunk_size > 0, "a chunk has tokens");
}

/// out[head] (+)= the sum over sequences, in order.
void sum_sequences(const SsdBackward& op, const double* of_heads, std::int64_t which, float* out) {
  if (out == nullptr) return;
  for (std::int64_t head = 0; head < op.shape.heads; ++head) {
    double sum = op.accumulate ? double{out[head]} : 0.0;
    for (std::int64_t sequence = 0; sequence < op.shape.num_sequences; ++sequence)
      sum += of_heads[(sequence * op.shape.heads + head) * kSsdHeadSums + which];
    out[head] = static_cast<float>(sum);
  }
}

}  // namespace

std::int64_t scratch_bytes(const Context& context, const SsdForward& op) {
  return ssd_forward_layout(op.shape).size * context.num_threads * size_of(DType::F32);
}

std::int64_t scratch_bytes(const Context& context, const SsdBackward& op) {
  return bc_grads_bytes(op.shape) + head_sums_bytes(op.shape) +
         ssd_backward_layout(op.shape).size * context.num_threads * size_of(DType::F32);
}

void run(const Context& context, const SsdForward& op) {
  require_shape(op.shape, op.dtype);
  require_scratch(context, scratch_bytes(context, op));
  const std::int64_t thread_floats = ssd_forward_layout(op.shape).size;
  parallel_for(context.num_threads, num_ssd_units(op.shape), 1, [&](Range units, int thread) {
    context.table.ssd_forward(op, units, context.thread_scratch(thread, thread_floats));
  });
}

void run(const Context& context, const SsdBackward& op) {
  require_shape(op.shape, op.dtype);
  require_scratch(context, scratch_bytes(context, op));
  std::byte* memory = context.scratch.data();
  std::byte* heads = memory + bc_grads_bytes(op.shape);
  auto* threads = reinterpret_cast<float*>(heads + head_sums_bytes(op.shape));
  const SsdSums sums{.bc_grads = reinterpret_cast<float*>(memory),
                     .of_heads = reinterpret_cast<double*>(heads)};
  const std::int64_t thread_floats = ssd_backward_layout(op.shape).size;
  parallel_for(context.num_threads, num_ssd_units(op.shape), 1, [&](Range units, int thread) {
    context.table.ssd_backward(op, units, threads + thread * thread_floats, sums);
  });
  parallel_for(context.num_threads, op.shape.tokens(),
               row_grain(2 * op.shape.groups * op.shape.state_size),
               [&](Range rows, int) { context.table.ssd_bc_grads(op, rows, sums); });
  sum_sequences(op, sums.of_heads, 0, op.da_log);
  sum_sequences(op, sums.of_heads, 1, op.dd);
  sum_sequences(op, sums.of_heads, 2, op.ddt_bias);
}

}  // namespace meshplan::kernels::cpu
