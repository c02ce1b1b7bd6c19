#include <algorithm>

#include "attention/attention_tiles.cuh"
#include "device/dispatch.hpp"
#include "device/launch.cuh"
#include "products/grouped_tiles.cuh"
#include "products/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kTile = 64;  // rows and columns of a block's part of the result
constexpr int kWarps = kTile / kWarpRows;
constexpr int kThreads = kWarps * kWarp;
constexpr int kBlocksPerSm = 4;  // what registers and shared memory let run at once

constexpr int kStages = 2;  // of shared memory: one is multiplied while the other is filled

/// c += a warp's 16 rows of the product of two tiles.
template <Product product, class T>
__device__ void multiply_tiles(float (&c)[kTile / 8][4], const T* a, const T* b, int warp_row) {
  using F = Fragments<T>;
  constexpr int kStride = kTileStride<T, kTile>;
#pragma unroll 2
  for (int k = 0; k < kTile; k += F::kDepth) {
    typename F::A rows;
    if constexpr (product == Product::ColumnsByColumns)
      rows = F::load_a_columns(a + k * kStride + warp_row, kStride);
    else
      rows = F::load_a(a + warp_row * kStride + k, kStride);
#pragma unroll
    for (int n = 0; n < kTile; n += 16) {
      typename F::B columns[2];
      if constexpr (product == Product::RowsByRows)
        F::load_b(columns, b + n * kStride + k, kStride);
      else
        F::load_b_rows(columns, b + k * kStride + n, kStride);
      F::multiply(c[n / 8], rows, columns[0]);
      F::multiply(c[n / 8 + 1], rows, columns[1]);
    }
  }
}

/// Columns [begin, begin + kTile) of a row-major matrix, as load_tile takes them.
template <class T>
__device__ HeadRows<T> columns_of(const T* data, std::int64_t stride, std::int64_t begin,
                                  std::int64_t count, bool aligned) {
  const std::int64_t left = count - begin;
  return {data + begin, stride, static_cast<int>(left < kTile ? left : kTile), aligned};
}

/// The tiles of two operands in shared memory, in each stage.
template <class T>
struct StagedTiles {
  static constexpr int kElements = kTile * kTileStride<T, kTile>;
  T* memory;
  __device__ T* a(int stage) const { return memory + 2 * stage * kElements; }
  __device__ T* b(int stage) const { return a(stage) + kElements; }
};

/// c += a product, tile by tile along its depth [begin, end): load(stage, k) asks for the copies of
/// the tiles at k, and multiply(stage) uses them while those after are on their way. One barrier a
/// tile: behind it this tile has arrived, and everyone is done with the one before, whose stage is
/// filled next. @param stage  that the next product begins with; whoever is late reads the other
template <class Load, class Multiply>
__device__ void for_each_tile(std::int64_t begin, std::int64_t end, int& stage, const Load& load,
                              const Multiply& multiply) {
  if (begin < end) load(stage, begin);
  for (std::int64_t k = begin; k < end; k += kTile) {
    wait_for_copies();
    __syncthreads();
    if (k + kTile < end) load(stage ^ 1, k + kTile);
    multiply(stage);
    stage ^= 1;
  }
}

/// Starts to copy the operands' tiles at depth k.
template <Product product, class T>
__device__ void load_tiles(const StagedTiles<T>& tiles, int to, const GroupedProduct& op,
                           const GroupedTile& at, std::int64_t k, bool aligned) {
  const T* a = static_cast<const T*>(op.a);
  const T* b = static_cast<const T*>(op.b);
  if constexpr (product == Product::ColumnsByColumns) {
    load_tile<kTile, kTile>(
        tiles.a(to), columns_of(a, op.a_stride, at.first_row, at.end_row, aligned), k, at.end);
  } else {
    load_tile<kTile, kTile>(tiles.a(to), columns_of(a, op.a_stride, k, at.end, aligned),
                            at.first_row, at.end_row);
    b += at.group * op.depth * op.columns;
  }
  if constexpr (product == Product::RowsByRows)
    load_tile<kTile, kTile>(tiles.b(to), columns_of(b, op.b_stride, k, at.end, aligned),
                            at.first_column, op.columns);
  else
    load_tile<kTile, kTile>(
        tiles.b(to), columns_of(b, op.b_stride, at.first_column, op.columns, aligned), k, at.end);
}

/// Each block does every gridDim.x-th tile.
template <class T, Product product>
__global__ void __launch_bounds__(kThreads) grouped_kernel(const GroupedProduct op, bool aligned) {
  const StagedTiles<T> tiles{dynamic_shared<T>()};
  int stage = 0;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  TileWalk<product, kTile, kTile> walk(op, blockIdx.x);
  for (; !walk.ended(); walk.move(gridDim.x)) {
    const GroupedTile at = walk.tile();
    float c[kTile / 8][4] = {};
    for_each_tile(
        at.begin, at.end, stage,
        [&](int to, std::int64_t k) { load_tiles<product>(tiles, to, op, at, k, aligned); },
        [&](int from) { multiply_tiles<product>(c, tiles.a(from), tiles.b(from), warp_row); });
    finish_tile<product, T, kTile>(op, at, warp_row, c, false);
  }
}

/// blockIdx = (64 columns of dy, group); rows of the group in ascending order.
template <class T>
__global__ void __launch_bounds__(kTile)
    grouped_bias_grad_kernel(const GroupedLinearWeightGrad op) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kTile + threadIdx.x;
  if (column >= op.shape.out_features) return;
  const T* dy = static_cast<const T*>(op.dy) + column;
  float sum = 0.0F;
#pragma unroll 8
  for (std::int64_t r = op.offsets.device[blockIdx.y]; r < op.offsets.device[blockIdx.y + 1]; ++r)
    sum += to_float(dy[r * op.dy_stride]);
  float* to = op.dbias + std::int64_t{blockIdx.y} * op.shape.out_features + column;
  *to = op.accumulate ? *to + sum : sum;
}

template <class T>
constexpr std::size_t kSharedBytes = tile_bytes<T, kTile>(2 * kTile * kStages);

template <class T, Product product>
void enqueue_on_mma(const Context& context, const GroupedProduct& op, std::int64_t max_rows) {
  const std::int64_t tiles = most_tiles(product, op, max_rows, kTile, kTile);
  const std::int64_t blocks = std::int64_t{context.num_sms} * kBlocksPerSm;
  const bool divides_depth = product == Product::ColumnsByColumns;
  const bool aligned =
      allows_packs(kPackWidth<T>,
                   {{op.a, op.a_stride, sizeof(T)}, {op.b, op.b_stride, sizeof(T)}}) &&
      (divides_depth ? op.rows : op.depth) % kPackWidth<T> == 0 && op.columns % kPackWidth<T> == 0;
  launch(context,
         {.grid = dim3(static_cast<unsigned>(std::min(tiles, blocks))),
          .block = dim3(kThreads),
          .shared_bytes = kSharedBytes<T>},
         grouped_kernel<T, product>, op, aligned);
}

template <Product product>
void enqueue_product(const Context& context, const GroupedProduct& op, DType dtype,
                     std::int64_t max_rows) {
  if (runs_on_wgmma(context, product, op, dtype))
    return enqueue_on_wgmma(context, product, op, dtype, max_rows);
  with_float_type(dtype, [&](auto type) {
    enqueue_on_mma<typename decltype(type)::type, product>(context, op, max_rows);
  });
}

const std::int32_t* device_offsets(const GroupOffsets& offsets) {
  require_invariant(offsets.device != nullptr, "group offsets lie in device memory");
  return offsets.device;
}

}  // namespace

void enqueue(const Context& context, const GroupedLinearForward& op) {
  enqueue_product<Product::RowsByRows>(context,
                                       {.num_groups = op.shape.num_groups,
                                        .offsets = device_offsets(op.offsets),
                                        .columns = op.shape.out_features,
                                        .depth = op.shape.in_features,
                                        .a = op.x,
                                        .a_stride = op.x_stride,
                                        .b = op.weight,
                                        .b_stride = op.shape.in_features,
                                        .bias = op.bias,
                                        .result = op.y,
                                        .result_stride = op.y_stride},
                                       op.dtype, op.shape.max_rows);
}

void enqueue(const Context& context, const GroupedLinearInputGrad& op) {
  enqueue_product<Product::RowsByColumns>(context,
                                          {.num_groups = op.shape.num_groups,
                                           .offsets = device_offsets(op.offsets),
                                           .columns = op.shape.in_features,
                                           .depth = op.shape.out_features,
                                           .a = op.dy,
                                           .a_stride = op.dy_stride,
                                           .b = op.weight,
                                           .b_stride = op.shape.in_features,
                                           .result = op.dx,
                                           .result_stride = op.dx_stride},
                                          op.dtype, op.shape.max_rows);
}

void enqueue(const Context& context, const GroupedLinearWeightGrad& op) {
  const GroupedLinearShape& shape = op.shape;
  if (op.dweight != nullptr)
    enqueue_product<Product::ColumnsByColumns>(context,
                                               {.num_groups = shape.num_groups,
                                                .offsets = device_offsets(op.offsets),
                                                .rows = shape.out_features,
                                                .columns = shape.in_features,
                                                .a = op.dy,
                                                .a_stride = op.dy_stride,
                                                .b = op.x,
                                                .b_stride = op.x_stride,
                                                .result = op.dweight,
                                                .result_stride = shape.in_features,
                                                .accumulate = op.accumulate},
                                               op.dtype, shape.max_rows);
  if (op.dbias == nullptr) return;
  device_offsets(op.offsets);
  with_float_type(op.dtype, [&](auto type) {
    launch(context,
           {.grid = dim3(static_cast<unsigned>(ceil_div(shape.out_features, kTile)),
                         static_cast<unsigned>(shape.num_groups)),
            .block = dim3(kTile)},
           grouped_bias_grad_kernel<typename decltype(type)::type>, op);
  });
}

}  // namespace meshplan::kernels::cuda
