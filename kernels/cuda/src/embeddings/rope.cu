#include "embeddings/operators.hpp"
#include "embeddings/rotation.cuh"
#include "kernels/embeddings/rope.hpp"

namespace meshplan::kernels::cuda {

namespace {

/// A row per blockIdx.x; a thread rotates packs of pairs.
template <class T, int width>
__global__ void rope_kernel(const Rope op) {
  const std::int64_t t = blockIdx.x;
  const std::int64_t half = op.rope_size / 2;
  const std::int64_t packs_per_head = half / width;
  const float* cosine = op.table + op.positions.of(t) * op.rope_size;
  const float sign = op.inverse ? -1.0F : 1.0F;
  T* row = static_cast<T*>(op.x) + t * op.x_stride;
  for_each_tile_pack<1>(op.heads * packs_per_head, [&](std::int64_t pack, auto /*one*/) {
    const std::int64_t head = pack / packs_per_head;
    const std::int64_t i = (pack - head * packs_per_head) * width;
    rotate_pairs<width>(row + head * op.head_size, cosine, half, i, sign);
  });
}

}  // namespace

void enqueue(const Context& context, const Rope& op) {
  require_invariant(op.rope_size > 0 && op.rope_size % 2 == 0 && op.rope_size <= op.head_size,
                    "rope_size is even and at most the head size");
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const std::int64_t half = op.rope_size / 2;
    // Every head and every half starts a multiple of 16 bytes after the row.
    const bool aligned = half % kWide == 0 && op.head_size % kWide == 0 &&
                         allows_packs(kWide, {{op.x, op.x_stride, sizeof(T)},
                                              {op.table, op.rope_size, sizeof(float)},
                                              {op.table + half, 0, sizeof(float)}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(context, tile_shape(op.tokens, op.heads * (half / kN), 1), rope_kernel<T, kN>, op);
    });
  });
}

}  // namespace meshplan::kernels::cuda
