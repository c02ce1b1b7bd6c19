// Tensors to FP8: the largest number first, unless the kernel that wrote the tensor has kept it
// (largest.cuh), then every element once, in both layouts that products read. The product itself is
// cuBLASLt's (linear.cpp).
#include <cuda_fp8.h>

#include <algorithm>

#include "device/largest.cuh"
#include "kernels/products/float8.hpp"
#include "products/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kPack = 4;  // elements: a 32-bit word of FP8, 8 or 16 bytes of what is read
constexpr int kMostPartials = 1024;  // blocks of the first pass; the second has a thread for 4 each
// A tile of 64 x 64: rows and columns of it are 64 bytes, two sectors of memory each way.
constexpr int kTile = 64;
constexpr int kPacksPerRow = kTile / kPack;
constexpr int kRowsPerPass = kThreads / kPacksPerRow;
constexpr int kTileStride = kTile + 4;  // a multiple of 4 that is none of 32 words: few conflicts

/// A NaN shows in its own element.
template <class T>
__global__ void largest_kernel(const T* x, std::int64_t count, float* partials) {
  float max = 0.0F;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * kPack;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kPack; i < count;
       i += step)
    max = larger(max, load_pack<kPack>(x + i));
  max = group_reduce<kThreads>(max, Max());
  if (threadIdx.x == 0) partials[blockIdx.x] = max;
}

/// Of a tensor whose largest number is `max` in a format whose largest is `largest`.
__device__ float scale_of(float max, float largest) {
  const float wanted = max / largest;
  return wanted >= 0x1p-126F ? wanted : 1.0F;
}

__global__ void scale_kernel(const float* partials, int count, float largest, float* scale) {
  float max = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads)
    max = fmaxf(max, partials[i]);
  max = group_reduce<kThreads>(max, Max());
  if (threadIdx.x == 0) *scale = scale_of(max, largest);
}

template <Float8Format format>
__device__ unsigned code_of(float x) {
  constexpr __nv_fp8_interpretation_t kind = format == Float8Format::E4M3 ? __NV_E4M3 : __NV_E5M2;
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, kind);
}

/// A block for each tile. Rows and columns are multiples of 4, so a pack lies inside or outside.
/// @param max  the largest number, from which this kernel makes the scale; null: it is there
template <class T, Float8Format format>
__global__ void quantize_kernel(const T* x, std::int64_t rows, std::int64_t columns,
                                const float* max, float* scale, std::uint8_t* quantized,
                                std::uint8_t* transposed) {
  struct Tile {
    alignas(4) std::uint8_t at[kTile * kTileStride];
  };
  Tile& tile = block_shared<Tile>();
  const float own_scale = max != nullptr ? scale_of(*max, layout_of(format).largest) : *scale;
  if (max != nullptr && blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *scale = own_scale;
  const float inverse = 1.0F / own_scale;
  const std::int64_t first_row = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t first_column = std::int64_t{blockIdx.x} * kTile;
  const int pack = static_cast<int>(threadIdx.x) % kPacksPerRow * kPack;
  const int line = static_cast<int>(threadIdx.x) / kPacksPerRow;
  for (int r = line; r < kTile; r += kRowsPerPass) {
    const std::int64_t row = first_row + r;
    const std::int64_t column = first_column + pack;
    if (row >= rows || column >= columns) continue;
    const Pack<kPack> values = load_pack<kPack>(x + row * columns + column);
    unsigned word = 0;
    for (int j = 0; j < kPack; ++j) word |= code_of<format>(values[j] * inverse) << (8 * j);
    if (quantized != nullptr)
      *reinterpret_cast<unsigned*>(quantized + row * columns + column) = word;
    *reinterpret_cast<unsigned*>(tile.at + r * kTileStride + pack) = word;
  }
  if (transposed == nullptr) return;  // the same for all threads
  __syncthreads();
  for (int c = line; c < kTile; c += kRowsPerPass) {
    const std::int64_t row = first_row + pack;
    const std::int64_t column = first_column + c;
    if (row >= rows || column >= columns) continue;
    unsigned word = 0;
    for (int j = 0; j < kPack; ++j)
      word |= static_cast<unsigned>(tile.at[(pack + j) * kTileStride + c]) << (8 * j);
    *reinterpret_cast<unsigned*>(transposed + column * rows + row) = word;
  }
}

int partials_of(const QuantizeFloat8& op) {
  return static_cast<int>(
      std::clamp<std::int64_t>(ceil_div(op.rows * op.columns, kThreads * kPack), 1, kMostPartials));
}

template <class T>
void enqueue_scale(const Context& context, const QuantizeFloat8& op) {
  auto* partials = reinterpret_cast<float*>(context.scratch.data());
  const int blocks = partials_of(op);
  launch(context, {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads)},
         largest_kernel<T>, static_cast<const T*>(op.x), op.rows * op.columns, partials);
  launch(context, {.grid = dim3(1), .block = dim3(kThreads)}, scale_kernel, partials, blocks,
         layout_of(op.format).largest, op.scale);
}

template <class T>
void enqueue_as(const Context& context, const QuantizeFloat8& op) {
  const auto* x = static_cast<const T*>(op.x);
  if (op.largest == nullptr) enqueue_scale<T>(context, op);
  const LaunchShape tiles{.grid = dim3(static_cast<unsigned>(ceil_div(op.columns, kTile)),
                                       static_cast<unsigned>(ceil_div(op.rows, kTile))),
                          .block = dim3(kThreads)};
  if (op.format == Float8Format::E4M3)
    launch(context, tiles, quantize_kernel<T, Float8Format::E4M3>, x, op.rows, op.columns,
           op.largest, op.scale, op.quantized, op.transposed);
  else
    launch(context, tiles, quantize_kernel<T, Float8Format::E5M2>, x, op.rows, op.columns,
           op.largest, op.scale, op.quantized, op.transposed);
}

bool is_aligned(const void* data, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

}  // namespace

std::int64_t scratch_bytes(const QuantizeFloat8& op) {
  return op.largest != nullptr ? 0 : partials_of(op) * size_of(DType::F32);
}

void enqueue(const Context& context, const QuantizeFloat8& op) {
  constexpr std::int64_t kMostTiles = 65535;  // of a grid's second dimension
  require_invariant(op.dtype == DType::F32 || op.dtype == DType::BF16,
                    "FP8 is made of fp32 or bf16");
  require_invariant(op.rows % kPack == 0 && op.columns % kPack == 0,
                    "rows and columns are multiples of 4");
  require_invariant(ceil_div(op.rows, kTile) <= kMostTiles, "at most 4,194,240 rows");
  require_invariant(
      is_aligned(op.x, 16) && is_aligned(op.quantized, 4) && is_aligned(op.transposed, 4),
      "operands of FP8 are aligned");
  require_scratch(context, scratch_bytes(op));
  if (op.dtype == DType::F32)
    enqueue_as<float>(context, op);
  else
    enqueue_as<__nv_bfloat16>(context, op);
}

}  // namespace meshplan::kernels::cuda
