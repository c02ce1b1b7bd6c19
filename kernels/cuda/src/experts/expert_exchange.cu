#include "device/reduce.cuh"
#include "device/rows.cuh"
#include "experts/operators.hpp"
#include "kernels/experts/expert_exchange.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kRowBlocks = 32;  // that share the rows of a (rank, expert) pair

__global__ void counts_kernel(const ExpertCounts op) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (x < op.experts) op.counts[x] = op.offsets[x + 1] - op.offsets[x];
}

/// One block: there are ranks * local experts numbers in all.
__global__ void sizes_kernel(const ExchangeSizes op) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int rank = thread; rank < op.ranks; rank += kRowThreads) {
    int sent = 0;
    int received = 0;
    for (int x = 0; x < op.local_experts; ++x) {
      sent += op.sent[rank * op.local_experts + x];
      received += op.received[rank * op.local_experts + x];
    }
    op.rows[rank] = sent;
    op.rows[op.ranks + rank] = received;
  }
  int before = 0;  // rows of earlier experts
  for (int first = 0; first < op.local_experts; first += kRowThreads) {
    const int x = first + thread;
    int rows = 0;
    if (x < op.local_experts)
      for (int rank = 0; rank < op.ranks; ++rank) rows += op.received[rank * op.local_experts + x];
    int total = 0;
    const int begin = before + block_exclusive_sum<kRowThreads>(rows, total);
    if (x < op.local_experts) op.offsets[x] = begin;
    before += total;
  }
  if (thread == 0) op.offsets[op.local_experts] = before;
}

/// Where the rows of a pair begin in either order.
struct Begins {
  int by_rank;
  int by_expert;
};
__device__ inline Begins operator+(const Begins& a, const Begins& b) {
  return {a.by_rank + b.by_rank, a.by_expert + b.by_expert};
}
__device__ inline Begins shuffle_xor(const Begins& value, int distance) {
  return {__shfl_xor_sync(kAllLanes, value.by_rank, distance),
          __shfl_xor_sync(kAllLanes, value.by_expert, distance)};
}

/// Block (pair of rank and local expert, share of its rows).
template <class T, int width>
__global__ void regroup_kernel(const RegroupRows op) {
  const int rank = static_cast<int>(blockIdx.x) / op.local_experts;
  const int expert = static_cast<int>(blockIdx.x) % op.local_experts;
  Begins begins{};
  for (int i = static_cast<int>(threadIdx.x); i < op.ranks * op.local_experts; i += kRowThreads) {
    const int r = i / op.local_experts;
    const int x = i % op.local_experts;
    if (r < rank || (r == rank && x < expert)) begins.by_rank += op.received[i];
    if (x < expert || (x == expert && r < rank)) begins.by_expert += op.received[i];
  }
  begins = group_reduce<kRowThreads>(begins, Sum());
  const int source = op.to_experts ? begins.by_rank : begins.by_expert;
  const int target = op.to_experts ? begins.by_expert : begins.by_rank;
  const std::int64_t room = op.max_rows - (source > target ? source : target);
  const std::int64_t received = op.received[blockIdx.x];
  const std::int64_t rows = received < room ? received : room;  // never outside of the buffers
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const T* from = static_cast<const T*>(op.from) + (source + row) * op.size;
    T* to = static_cast<T*>(op.to) + (target + row) * op.size;
    for_each_column_pack<width>(op.size, threadIdx.x, kRowThreads, [&](std::int64_t i, auto n) {
      store_pack(to + i, load_pack<decltype(n)::value>(from + i));
    });
  }
}

}  // namespace

void enqueue(const Context& context, const ExpertCounts& op) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(op.experts, kRowThreads))),
                          .block = dim3(kRowThreads)};
  launch(context, shape, counts_kernel, op);
}

void enqueue(const Context& context, const ExchangeSizes& op) {
  launch(context, {.grid = dim3(1), .block = dim3(kRowThreads)}, sizes_kernel, op);
}

void enqueue(const Context& context, const RegroupRows& op) {
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(op.ranks * op.local_experts), kRowBlocks),
      .block = dim3(kRowThreads)};
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned =
        allows_packs(kWide, {{op.from, op.size, sizeof(T)}, {op.to, op.size, sizeof(T)}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      launch(context, shape, regroup_kernel<T, decltype(width)::value>, op);
    });
  });
}

}  // namespace meshplan::kernels::cuda
