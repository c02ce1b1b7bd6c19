#include "device/rows.cuh"
#include "device/stable_sort.hpp"
#include "embeddings/operators.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/embeddings/embedding.hpp"

namespace meshplan::kernels::cuda {

namespace {

template <class T, int width>
__global__ void forward_kernel(const EmbeddingForward op) {
  const std::int64_t t = blockIdx.x;
  const std::int64_t id = op.ids[t];
  const bool here = id >= op.vocab_begin && id < op.vocab_end;
  const T* weight = static_cast<const T*>(op.weight) + (here ? id - op.vocab_begin : 0) * op.size;
  T* out = static_cast<T*>(op.out) + t * op.out_stride;
  for_each_tile_pack<width>(op.size, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    Pack<kN> value{};
    if (here) value = load_pack<kN>(weight + i);
    store_pack(out + i, value);
  });
}

/// The row of each token's id; the number of rows for ids of other shards, which sorts them last.
__global__ void rows_kernel(const EmbeddingBackward op, std::int32_t* rows) {
  const std::int64_t t = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (t >= op.tokens) return;
  const std::int64_t id = op.ids[t];
  const bool here = id >= op.vocab_begin && id < op.vocab_end;
  rows[t] = static_cast<std::int32_t>(here ? id - op.vocab_begin : op.vocab_end - op.vocab_begin);
}

/// Place blockIdx.x of the sorted tokens: where a row's tokens begin, adds all of them in order.
template <class T, int width>
__global__ void backward_kernel(const EmbeddingBackward op, const SortedItems sorted) {
  constexpr int kAhead = 4;  // rows in flight
  const std::int64_t begin = blockIdx.x;
  const std::int32_t row = sorted.keys[begin];
  if (row == op.vocab_end - op.vocab_begin) return;
  if (begin > 0 && sorted.keys[begin - 1] == row) return;
  float* out = op.dweight + row * op.size;
  for_each_tile_pack<width>(op.size, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    Pack<kN> sum = load_pack<kN>(out + i);
    bool more = true;
    for (std::int64_t first = begin; more; first += kAhead) {
      Pack<kN> parts[kAhead] = {};
      bool belongs[kAhead];
      for (int a = 0; a < kAhead; ++a) {
        more = more && first + a < op.tokens && sorted.keys[first + a] == row;
        belongs[a] = more;
        if (more)
          parts[a] = load_pack<kN>(static_cast<const T*>(op.dout) +
                                   sorted.items[first + a] * op.dout_stride + i);
      }
      for (int a = 0; a < kAhead; ++a)
        if (belongs[a])
          for (int j = 0; j < kN; ++j) sum[j] += parts[a][j];
    }
    store_pack(out + i, sum);
  });
}

}  // namespace

void enqueue(const Context& context, const EmbeddingForward& op) {
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned =
        allows_packs(kWide, {{op.weight, op.size, sizeof(T)}, {op.out, op.out_stride, sizeof(T)}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(context, tile_shape(op.tokens, op.size, kN), forward_kernel<T, kN>, op);
    });
  });
}

std::int64_t scratch_bytes(const EmbeddingBackward& op) {
  return sort_scratch_bytes(op.tokens);
}

void enqueue(const Context& context, const EmbeddingBackward& op) {
  require_scratch(context, scratch_bytes(op));
  const std::int64_t rows = op.vocab_end - op.vocab_begin;
  if (!op.accumulate)
    check(cudaMemsetAsync(op.dweight, 0, static_cast<std::size_t>(rows * op.size) * sizeof(float),
                          context.stream),
          "cudaMemsetAsync");
  const LaunchShape per_token{.grid = dim3(static_cast<unsigned>(ceil_div(op.tokens, kRowThreads))),
                              .block = dim3(kRowThreads)};
  launch(context, per_token, rows_kernel, op, sort_keys(context.scratch.data()));
  const SortedItems sorted =
      enqueue_stable_sort(context, op.tokens, rows + 1, context.scratch.data());
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned =
        allows_packs(kWide, {{op.dout, op.dout_stride, sizeof(T)}, {op.dweight, op.size, 4}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(context, tile_shape(op.tokens, op.size, kN), backward_kernel<T, kN>, op, sorted);
    });
  });
}

}  // namespace meshplan::kernels::cuda
