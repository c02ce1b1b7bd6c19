#include <bit>
#include <limits>
#include <utility>

#include "device/device.cuh"
#include "device/launch.cuh"
#include "device/reduce.cuh"
#include "device/stable_sort.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kThreads = kDigits;   // a thread for every digit, too
constexpr int kItemsPerThread = 8;  // amortizes the load of 256 offsets
constexpr int kTile = kThreads * kItemsPerThread;
constexpr int kScanThreads = 1024;

__device__ int digit_of(std::int32_t key, int shift) {
  return (key >> shift) & (kDigits - 1);
}

/// counts[digit * num_tiles + tile] = items of the tile with that digit.
__global__ void count_kernel(const std::int32_t* keys, std::int64_t count, int shift,
                             std::int32_t* counts) {
  struct Storage {
    int of_digit[kDigits];
  };
  Storage& storage = block_shared<Storage>();
  storage.of_digit[threadIdx.x] = 0;
  __syncthreads();
  const std::int64_t first = std::int64_t{blockIdx.x} * kTile;
  for (int round = 0; round < kItemsPerThread; ++round) {
    const std::int64_t i = first + round * kThreads + threadIdx.x;
    if (i < count) atomicAdd(&storage.of_digit[digit_of(keys[i], shift)], 1);
  }
  __syncthreads();
  counts[std::int64_t{threadIdx.x} * gridDim.x + blockIdx.x] = storage.of_digit[threadIdx.x];
}

/// Replaces counts by the sums of those before them; one block.
__global__ void exclusive_scan_kernel(std::int32_t* counts, std::int64_t count) {
  int carry = 0;
  for (std::int64_t first = 0; first < count; first += kScanThreads) {
    const std::int64_t i = first + threadIdx.x;
    int total = 0;
    const int before = block_exclusive_sum<kScanThreads>(i < count ? counts[i] : 0, total);
    if (i < count) counts[i] = carry + before;
    carry += total;
  }
}

/// Moves the tile's items to their places in the order of `shift`'s digit. `offsets` is the scanned
/// counts; null `items` stand for 0, 1, 2, ...
__global__ void scatter_kernel(const std::int32_t* keys, const std::int32_t* items,
                               std::int64_t count, int shift, const std::int32_t* offsets,
                               std::int32_t* keys_out, std::int32_t* items_out) {
  struct Storage {
    int next[kDigits];                       // where the next item of a digit goes
    int of_warp[kThreads / kWarp][kDigits];  // count, then place, of the warp's items of a digit
  };
  Storage& storage = block_shared<Storage>();
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const std::int64_t first = std::int64_t{blockIdx.x} * kTile;
  storage.next[threadIdx.x] = offsets[std::int64_t{threadIdx.x} * gridDim.x + blockIdx.x];
  for (int round = 0; round < kItemsPerThread; ++round) {
    for (auto& counts : storage.of_warp) counts[threadIdx.x] = 0;
    __syncthreads();
    const std::int64_t i = first + round * kThreads + threadIdx.x;
    const bool valid = i < count;
    const std::int32_t key = valid ? keys[i] : 0;
    const int digit = digit_of(key, shift);
    const unsigned equal = __match_any_sync(kAllLanes, valid ? digit : kDigits);
    const int rank = __popc(equal & ((1U << lane) - 1U));
    if (valid && rank == 0) storage.of_warp[warp][digit] = __popc(equal);
    __syncthreads();
    int place = storage.next[threadIdx.x];  // as the thread of a digit
    for (auto& counts : storage.of_warp) {
      const int own = counts[threadIdx.x];
      counts[threadIdx.x] = place;
      place += own;
    }
    storage.next[threadIdx.x] = place;
    __syncthreads();
    if (valid) {
      const int to = storage.of_warp[warp][digit] + rank;
      keys_out[to] = key;
      items_out[to] = items != nullptr ? items[i] : static_cast<std::int32_t>(i);
    }
    __syncthreads();
  }
}

std::int64_t padded(std::int64_t count) {
  constexpr std::int64_t kAlignment = 16;  // 64 bytes
  return ceil_div(count, kAlignment) * kAlignment;
}

}  // namespace

std::int64_t sort_scratch_bytes(std::int64_t count) {
  return (4 * padded(count) + kDigits * ceil_div(count, kTile)) * size_of(DType::I32);
}

std::int32_t* sort_keys(std::byte* scratch) {
  return reinterpret_cast<std::int32_t*>(scratch);
}

SortedItems enqueue_stable_sort(const Context& context, std::int64_t count, std::int64_t num_keys,
                                std::byte* scratch) {
  require_invariant(count <= std::numeric_limits<std::int32_t>::max(), "a sort of < 2^31 items");
  std::int32_t* keys = sort_keys(scratch);
  std::int32_t* keys_out = keys + padded(count);
  std::int32_t* items = keys_out + padded(count);
  std::int32_t* items_out = items + padded(count);
  std::int32_t* counts = items_out + padded(count);
  const std::int64_t tiles = ceil_div(count, kTile);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(tiles)), .block = dim3(kThreads)};
  const auto last_key = static_cast<std::uint64_t>(num_keys > 1 ? num_keys - 1 : 1);
  const int bits = static_cast<int>(std::bit_width(last_key));
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    launch(context, shape, count_kernel, keys, count, shift, counts);
    launch(context, {.grid = dim3(tiles > 0 ? 1 : 0), .block = dim3(kScanThreads)},
           exclusive_scan_kernel, counts, kDigits * tiles);
    launch(context, shape, scatter_kernel, keys, shift > 0 ? items : nullptr, count, shift, counts,
           keys_out, items_out);
    std::swap(keys, keys_out);
    std::swap(items, items_out);
  }
  return {keys, items};
}

}  // namespace meshplan::kernels::cuda
