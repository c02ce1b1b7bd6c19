#include "attention/operators.hpp"
#include "device/reduce.cuh"
#include "device/rows.cuh"
#include "kernels/attention/attention_merge.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kWarps = kRowThreads / kWarp;  // a head of a token for each

template <class T, class U, int width>
__global__ void merge_kernel(const AttentionMerge op) {
  const std::int64_t lane = threadIdx.x % kWarp;
  const std::int64_t pair = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (pair >= op.tokens * op.heads) return;
  const std::int64_t t = pair / op.heads;
  const std::int64_t head = pair - t * op.heads;
  const std::int64_t statistic = op.lse_index(head, t);
  const float lse = op.lse[statistic];
  const float other_lse = op.other_lse[statistic];
  if (other_lse == -INFINITY) return;
  const float max = fmaxf(lse, other_lse);
  const float own = expf(lse - max);
  const float other = expf(other_lse - max);
  const float inv_sum = 1.0F / (own + other);
  T* o = static_cast<T*>(op.o) + t * op.o_stride + head * op.head_size;
  const U* other_o =
      static_cast<const U*>(op.other_o) + t * op.other_o_stride + head * op.head_size;
  for_each_column_pack<width>(op.head_size, lane, kWarp, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto value = load_pack<kN>(o + i);
    const auto more = load_pack<kN>(other_o + i);
    for (int j = 0; j < kN; ++j) value[j] = (own * value[j] + other * more[j]) * inv_sum;
    store_pack(o + i, value);
  });
  __syncwarp();  // all lanes have read lse
  if (lane == 0) op.lse[statistic] = max + logf(own + other);
}

}  // namespace

void enqueue(const Context& context, const AttentionMerge& op) {
  with_float_type(op.dtype, [&](auto type) {
    with_float_type(op.other_dtype, [&](auto other_type) {
      using T = typename decltype(type)::type;
      using U = typename decltype(other_type)::type;
      constexpr int kWide = 4;  // 128 fp32 or bf16 of a head are one pass of the warp
      const bool aligned = op.head_size % kWide == 0 &&
                           allows_packs(kWide, {{op.o, op.o_stride, sizeof(T)},
                                                {op.other_o, op.other_o_stride, sizeof(U)}});
      const std::int64_t pairs = op.tokens * op.heads;
      const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(pairs, kWarps))),
                              .block = dim3(kRowThreads)};
      with_pack_width<kWide>(aligned, [&](auto width) {
        launch(context, shape, merge_kernel<T, U, decltype(width)::value>, op);
      });
    });
  });
}

}  // namespace meshplan::kernels::cuda
