#include "device/rows.cuh"
#include "embeddings/operators.hpp"
#include "kernels/embeddings/position_embedding.hpp"

namespace meshplan::kernels::cuda {

namespace {

template <class T, int width>
__global__ void forward_kernel(const PositionEmbeddingForward op) {
  const std::int64_t t = blockIdx.x;
  const T* x = static_cast<const T*>(op.x) + t * op.x_stride;
  const T* weight = static_cast<const T*>(op.weight) + op.positions.of(t) * op.size;
  T* out = static_cast<T*>(op.out) + t * op.out_stride;
  for_each_tile_pack<width>(op.size, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto value = load_pack<kN>(x + i);
    const auto w = load_pack<kN>(weight + i);
    for (int j = 0; j < kN; ++j) value[j] += w[j];
    store_pack(out + i, value);
  });
}

/// Position blockIdx.x: its tokens are seq_len rows apart, or where op.positions.rows says.
template <class T, int width>
__global__ void backward_kernel(const PositionEmbeddingBackward op) {
  const std::int64_t position = blockIdx.x;
  const std::int64_t seq_len = op.positions.seq_len;
  const bool listed = op.positions.rows != nullptr;
  const std::int64_t in_sequence = listed ? 0 : op.positions.row_of(position);
  const bool occurs = in_sequence >= 0;
  const std::int64_t first =
      listed ? 0 : ((in_sequence - op.positions.first_row) % seq_len + seq_len) % seq_len;
  const std::int64_t step = listed ? 1 : seq_len;
  float* out = op.dweight + position * op.size;
  for_each_tile_pack<width>(op.size, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    Pack<kN> sum{};
    if (op.accumulate) sum = load_pack<kN>(out + i);
    for (std::int64_t t = first; occurs && t < op.tokens; t += step) {
      if (listed && op.positions.of(t) != position) continue;
      const auto part = load_pack<kN>(static_cast<const T*>(op.dout) + t * op.dout_stride + i);
      for (int j = 0; j < kN; ++j) sum[j] += part[j];
    }
    store_pack(out + i, sum);
  });
}

}  // namespace

void enqueue(const Context& context, const PositionEmbeddingForward& op) {
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned = allows_packs(kWide, {{op.x, op.x_stride, sizeof(T)},
                                              {op.weight, op.size, sizeof(T)},
                                              {op.out, op.out_stride, sizeof(T)}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(context, tile_shape(op.tokens, op.size, kN), forward_kernel<T, kN>, op);
    });
  });
}

void enqueue(const Context& context, const PositionEmbeddingBackward& op) {
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned =
        allows_packs(kWide, {{op.dout, op.dout_stride, sizeof(T)}, {op.dweight, op.size, 4}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(context, tile_shape(op.num_positions, op.size, kN), backward_kernel<T, kN>, op);
    });
  });
}

}  // namespace meshplan::kernels::cuda
