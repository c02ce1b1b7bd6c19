#include "device/column_sums.cuh"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kSliceThreads = 8;  // threads that share a column; blocks are 32 columns wide

__global__ void sum_partials_kernel(const float* partials, std::int64_t num_partials,
                                    std::int64_t stride, std::int64_t columns, float* out,
                                    bool accumulate) {
  struct Storage {
    float of_slice[kSliceThreads][kWarp];
  };
  Storage& storage = block_shared<Storage>();
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + threadIdx.x;
  float sum = 0.0F;
  if (column < columns)
    for (std::int64_t p = threadIdx.y; p < num_partials; p += kSliceThreads)
      sum += partials[p * stride + column];
  storage.of_slice[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = accumulate ? out[column] : 0.0F;
  for (int slice = 0; slice < kSliceThreads; ++slice) total += storage.of_slice[slice][threadIdx.x];
  out[column] = total;
}

}  // namespace

std::size_t shared_for_sums(const Context& context, std::int64_t sums) {
  const std::int64_t bytes = sums * size_of(DType::F32);
  const std::int64_t most = context.max_shared_bytes - static_cast<std::int64_t>(kMostStaticShared);
  if (bytes > most)
    throw InvariantError("a norm's weight gradient needs " + std::to_string(bytes) +
                         " bytes of shared memory, a block of this GPU has " +
                         std::to_string(most));
  return static_cast<std::size_t>(bytes);
}

void enqueue_sum_partials(const Context& context, const float* partials, std::int64_t num_partials,
                          std::int64_t stride, std::int64_t columns, float* out, bool accumulate) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(columns, kWarp))),
                          .block = dim3(kWarp, kSliceThreads)};
  launch(context, shape, sum_partials_kernel, partials, num_partials, stride, columns, out,
         accumulate);
}

}  // namespace meshplan::kernels::cuda
