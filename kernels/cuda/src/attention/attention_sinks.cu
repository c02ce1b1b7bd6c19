#include "attention/operators.hpp"
#include "device/column_sums.cuh"
#include "device/reduce.cuh"
#include "kernels/attention/attention_sinks.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kWarps = kRowThreads / kWarp;

/// A range of tokens; each warp does every kWarps-th head of them, tokens in ascending order.
template <class T>
__global__ void sinks_grad_kernel(const AttentionSinksGrad op, std::int64_t rows_per_block,
                                  float* partials) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t first = std::int64_t{blockIdx.x} * rows_per_block;
  const std::int64_t end = first + rows_per_block < op.tokens ? first + rows_per_block : op.tokens;
  for (int head = static_cast<int>(threadIdx.x) / kWarp; head < op.heads; head += kWarps) {
    const float sink = to_float(static_cast<const T*>(op.sinks)[head]);
    float sum = 0.0F;
    for (std::int64_t t = first; t < end; ++t) {
      const std::int64_t begin = t * op.o_stride + std::int64_t{head} * op.head_size;
      const T* o = static_cast<const T*>(op.o) + begin;
      const T* output_grad = static_cast<const T*>(op.output_grad) + begin;
      float delta = 0.0F;
      for (int e = lane; e < op.head_size; e += kWarp)
        delta += to_float(o[e]) * to_float(output_grad[e]);
      delta = warp_reduce(delta, Sum());
      sum -= expf(sink - op.lse[op.lse_index(t, head)]) * delta;
    }
    if (lane == 0) partials[std::int64_t{blockIdx.x} * op.heads + head] = sum;
  }
}

}  // namespace

std::int64_t scratch_bytes(const AttentionSinksGrad& op) {
  return split_rows(op.tokens, 1).num_blocks * op.heads * size_of(DType::F32);
}

void enqueue(const Context& context, const AttentionSinksGrad& op) {
  require_scratch(context, scratch_bytes(op));
  auto* partials = reinterpret_cast<float*>(context.scratch.data());
  const RowRanges ranges = split_rows(op.tokens, 1);
  with_float_type(op.dtype, [&](auto type) {
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ranges.num_blocks)),
                            .block = dim3(kRowThreads)};
    launch(context, shape, sinks_grad_kernel<typename decltype(type)::type>, op,
           ranges.rows_per_block, partials);
  });
  enqueue_sum_partials(context, partials, ranges.num_blocks, op.heads, op.heads, op.dsinks,
                       op.accumulate);
}

}  // namespace meshplan::kernels::cuda
