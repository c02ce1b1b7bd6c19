#include "mixers/operators.hpp"
#include "mixers/ssd_tiles.cuh"

namespace meshplan::kernels::cuda {

namespace {

/// What each chunk adds to the state: where the state behind it will be.
template <class T>
__global__ void chunk_states_kernel(const SsdForward op, const SsdDecays decays) {
  const SsdShape& shape = op.shape;
  const SsdChunk chunk(shape, blockIdx.x);
  const std::int64_t head = blockIdx.z;
  const std::int64_t size = shape.head_size * shape.state_size;
  float* out = op.states + ((chunk.index + 1) * shape.heads + head) * size;
  if (chunk.of_sequence + 1 == shape.num_chunks()) {
    if (op.final_state == nullptr) return;
    out = op.final_state + (chunk.sequence * shape.heads + head) * size;
  }
  const SsdHeadDecays of_head(decays, shape, chunk, head);
  sum_outer_products(out, shape, x_rows<T>(op, chunk, head),
                     b_rows<T>(op, chunk, group_of(shape, head)),
                     [&](std::int64_t i) { return of_head.step(i) * of_head.to_end(i); });
}

/// Passes the state through the chunks of a sequence: a thread for each of its numbers.
__global__ void pass_states_kernel(const SsdForward op, const SsdDecays decays) {
  const SsdShape& shape = op.shape;
  const std::int64_t size = shape.head_size * shape.state_size;
  const std::int64_t i = std::int64_t{blockIdx.x} * kSsdThreads + threadIdx.x;
  if (i >= size) return;
  const std::int64_t head = blockIdx.y;
  const std::int64_t sequence = blockIdx.z;
  const std::int64_t at = (sequence * shape.heads + head) * size + i;
  const std::int64_t chunks = shape.num_chunks();
  float h = op.initial_state == nullptr ? 0.0F : op.initial_state[at];
  for (std::int64_t k = 0; k < chunks; ++k) {
    const SsdChunk chunk(shape, sequence * chunks + k);
    float* slot = op.states + (chunk.index * shape.heads + head) * size + i;
    *slot = h;
    float* next = k + 1 < chunks ? slot + shape.heads * size : op.final_state + at;
    if (k + 1 == chunks && op.final_state == nullptr) return;
    h = SsdHeadDecays(decays, shape, chunk, head).across() * h + *next;
    *next = h;
  }
}

/// A tile of a head's outputs: 64 tokens of a chunk.
template <class T>
__global__ void outputs_kernel(const SsdForward op, const SsdDecays decays) {
  const SsdShape& shape = op.shape;
  const SsdChunk chunk(shape, blockIdx.x);
  const std::int64_t head = blockIdx.z;
  const std::int64_t target = std::int64_t{blockIdx.y} * kSsdTile;
  if (target >= chunk.length) return;
  const SsdHeadDecays of_head(decays, shape, chunk, head);
  const SsdRows<T> x = x_rows<T>(op, chunk, head);
  const SsdRows<T> b = b_rows<T>(op, chunk, group_of(shape, head));
  const SsdRows<T> c = c_rows<T>(op, chunk, group_of(shape, head));
  const SsdState h(op.states, shape, chunk.index, head);
  SsdTile& weights = block_shared<SsdTile>();
  const float d = to_float(static_cast<const T*>(op.d)[head]);
  T* y = static_cast<T*>(op.y) + chunk.first * op.y_stride + head * shape.head_size;
  for (std::int64_t p = 0; p < shape.head_size; p += kSsdTile) {
    SsdSums sums;
    for (std::int64_t source = 0; source <= target; source += kSsdTile) {
      SsdSums scores;
      multiply_tile<true, true>(
          scores, shape.state_size, [&](int i, std::int64_t n) { return c(target + i, n); },
          [&](std::int64_t n, int j) { return b(source + j, n); });
      for_each_sum(scores, [&](int row, int column, float score) {
        const std::int64_t i = target + row;
        const std::int64_t j = source + column;
        const bool inside = i < chunk.length && j < chunk.length;
        weights.at[row][column] = inside ? score * of_head.between(j, i) * of_head.step(j) : 0.0F;
      });
      multiply_tile<true, false>(
          sums, kSsdTile, [&](int i, std::int64_t j) { return weights.at[i][j]; },
          [&](std::int64_t j, int column) { return x(source + j, p + column); });
    }
    multiply_tile<true, true>(
        sums, shape.state_size,
        [&](int i, std::int64_t n) {
          return target + i < chunk.length ? c(target + i, n) * of_head.from_start(target + i)
                                           : 0.0F;
        },
        [&](std::int64_t n, int column) { return h(p + column, n); });
    for_each_sum(sums, [&](int row, int column, float sum) {
      const std::int64_t i = target + row;
      if (i < chunk.length && p + column < shape.head_size)
        y[i * op.y_stride + p + column] = from_float<T>(sum + d * x(i, p + column));
    });
  }
}

}  // namespace

std::int64_t scratch_bytes(const SsdForward& op) {
  return ssd_scratch(op, nullptr).bytes;
}

void enqueue(const Context& context, const SsdForward& op) {
  const SsdShape& shape = op.shape;
  require_invariant(shape.groups > 0 && shape.heads % shape.groups == 0,
                    "heads of a state-space mixer are a multiple of its groups");
  require_scratch(context, scratch_bytes(op));
  const SsdDecays decays = ssd_scratch(op, context.scratch.data()).decays;
  enqueue_ssd_decays(context, op, decays);
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(context, ssd_launch(shape, ssd_state_tiles(shape), shape.heads), chunk_states_kernel<T>,
           op, decays);
    launch(context, ssd_state_launch(shape), pass_states_kernel, op, decays);
    launch(context, ssd_launch(shape, ssd_token_tiles(shape), shape.heads), outputs_kernel<T>, op,
           decays);
  });
}

}  // namespace meshplan::kernels::cuda
