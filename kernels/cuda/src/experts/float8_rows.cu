// Rows in FP8 for the exchange of experts: a warp for each block of 128 numbers, four to a thread.
#include <cuda_fp8.h>

#include "core/float8_rows.hpp"
#include "device/reduce.cuh"
#include "device/rows.cuh"
#include "experts/operators.hpp"
#include "kernels/products/float8.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kWarp = 32;
constexpr int kWarps = kRowThreads / kWarp;
constexpr int kPack = static_cast<int>(kFloat8PerWord);
static_assert(kWarp * kPack == kFloat8Block, "a warp holds a block");

template <class T>
__global__ void pack_kernel(const PackFloat8Rows op) {
  const std::int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t blocks = float8_blocks(op.size);
  float* scales = op.packed + row * float8_row_words(op.size);
  auto* codes = reinterpret_cast<unsigned*>(scales + blocks);
  for (std::int64_t block = threadIdx.x / kWarp; block < blocks; block += kWarps) {
    const std::int64_t i = block * kFloat8Block + lane * kPack;
    Pack<kPack> numbers{};
    if (i < op.size) numbers = load_pack<kPack>(static_cast<const T*>(op.x) + row * op.size + i);
    float largest = 0.0F;
    for (int j = 0; j < kPack; ++j) largest = fmaxf(largest, fabsf(numbers[j]));
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    const float wanted = largest / layout_of(Float8Format::E4M3).largest;
    const float scale = wanted >= 0x1p-126F ? wanted : 1.0F;
    const float inverse = 1.0F / scale;
    if (lane == 0) scales[block] = scale;
    unsigned word = 0;
    for (int j = 0; j < kPack; ++j)
      word |= unsigned{__nv_cvt_float_to_fp8(numbers[j] * inverse, __NV_SATFINITE, __NV_E4M3)}
              << (8 * j);
    if (i < op.size) codes[i / kPack] = word;
  }
}

template <class T>
__global__ void unpack_kernel(const UnpackFloat8Rows op) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t blocks = float8_blocks(op.size);
  const float* scales = op.packed + row * float8_row_words(op.size);
  const auto* codes = reinterpret_cast<const unsigned*>(scales + blocks);
  for (std::int64_t i = threadIdx.x * kPack; i < op.size; i += kRowThreads * kPack) {
    const unsigned word = codes[i / kPack];
    const float scale = scales[i / kFloat8Block];
    Pack<kPack> numbers{};
    for (int j = 0; j < kPack; ++j)
      numbers[j] = scale * from_float8(static_cast<std::uint8_t>(word >> (8 * j) & 0xffU),
                                       Float8Format::E4M3);
    store_pack(static_cast<T*>(op.x) + row * op.size + i, numbers);
  }
}

LaunchShape block_per_row(std::int64_t rows) {
  return {.grid = dim3(static_cast<unsigned>(rows)), .block = dim3(kRowThreads)};
}

}  // namespace

void enqueue(const Context& context, const PackFloat8Rows& op) {
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(context, block_per_row(op.rows), pack_kernel<T>, op);
  });
}

void enqueue(const Context& context, const UnpackFloat8Rows& op) {
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(context, block_per_row(op.rows), unpack_kernel<T>, op);
  });
}

}  // namespace meshplan::kernels::cuda
