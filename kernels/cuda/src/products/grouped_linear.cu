#include <algorithm>

#include "attention/attention_tiles.cuh"
#include "device/dispatch.hpp"
#include "device/launch.cuh"
#include "products/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kTile = 64;  // rows and columns of a block's part of the result
constexpr int kWarps = kTile / kWarpRows;
constexpr int kThreads = kWarps * kWarp;
constexpr int kBlocksPerSm = 4;  // what registers and shared memory let run at once

constexpr int kStages = 2;  // of shared memory: one is multiplied while the other is filled

/// Which way the operands of a product lie in memory.
enum class Product {
  RowsByRows,       // a (m, k), b (n, k): y = x w^T
  RowsByColumns,    // a (m, k), b (k, n): dx = dy w
  ColumnsByColumns  // a (k, m), b (k, n): dw = dy^T x
};

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

struct RowsOperands {
  std::int64_t num_groups, depth, columns;  // columns of the result
  const std::int32_t* offsets;
  const void* x;
  std::int64_t x_stride;
  const void* weight;
  std::int64_t weight_columns;  // a group's weight is (depth x columns) numbers in rows of these
  const void* bias;
  void* y;
  std::int64_t y_stride;
};

/// The tile of the result that is `number`-th over all groups.
struct TilePlace {
  std::int64_t group, first_row, end_row, first_column;
  bool exists;
};
__device__ inline TilePlace place_of(const RowsOperands& op, std::int64_t number) {
  const std::int64_t column_tiles = (op.columns + kTile - 1) / kTile;
  for (std::int64_t group = 0; group < op.num_groups; ++group) {
    const std::int64_t begin = op.offsets[group];
    const std::int64_t end = op.offsets[group + 1];
    const std::int64_t tiles = (end - begin + kTile - 1) / kTile * column_tiles;
    if (number < tiles)
      return {group, begin + number / column_tiles * kTile, end, number % column_tiles * kTile,
              true};
    number -= tiles;
  }
  return {0, 0, 0, 0, false};
}

/// Each block does every gridDim.x-th tile: only the device knows how many there are.
template <class T, Product product>
__global__ void __launch_bounds__(kThreads)
    grouped_rows_kernel(const RowsOperands op, bool aligned) {
  constexpr bool kByRows = product == Product::RowsByRows;
  const StagedTiles<T> tiles{dynamic_shared<T>()};
  int stage = 0;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  for (std::int64_t number = blockIdx.x;; number += gridDim.x) {
    const TilePlace at = place_of(op, number);
    if (!at.exists) return;
    const T* x = static_cast<const T*>(op.x);
    const T* weight = static_cast<const T*>(op.weight) + at.group * op.depth * op.columns;
    float c[kTile / 8][4] = {};
    const auto load = [&](int to, std::int64_t k) {
      load_tile<kTile, kTile>(tiles.a(to), columns_of(x, op.x_stride, k, op.depth, aligned),
                              at.first_row, at.end_row);
      if constexpr (kByRows)
        load_tile<kTile, kTile>(tiles.b(to),
                                columns_of(weight, op.weight_columns, k, op.depth, aligned),
                                at.first_column, op.columns);
      else
        load_tile<kTile, kTile>(
            tiles.b(to),
            columns_of(weight, op.weight_columns, at.first_column, op.columns, aligned), k,
            op.depth);
    };
    for_each_tile(0, op.depth, stage, load, [&](int from) {
      multiply_tiles<product>(c, tiles.a(from), tiles.b(from), warp_row);
    });
    const std::int64_t left = op.columns - at.first_column;
    if (op.bias != nullptr) {
      const T* bias = static_cast<const T*>(op.bias) + at.group * op.columns + at.first_column;
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
        for (int i = 0; i < 4; ++i) {
          const int column = 8 * n + lane_column() + i % 2;
          if (column < left) c[n][i] += to_float(bias[column]);
        }
      }
    }
    const float one[2] = {1.0F, 1.0F};
    store_rows<kTile>(static_cast<T*>(op.y) + at.first_column, op.y_stride,
                      static_cast<int>(left < kTile ? left : kTile), at.first_row + warp_row,
                      at.end_row, c, one);
  }
}

/// blockIdx = (tile of I, tile of O, group); rows of the group in ascending order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    grouped_weight_grad_kernel(const GroupedLinearWeightGrad op, bool aligned) {
  const std::int64_t in = op.shape.in_features;
  const std::int64_t out = op.shape.out_features;
  const StagedTiles<T> tiles{dynamic_shared<T>()};
  int stage = 0;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  const std::int64_t first_in = std::int64_t{blockIdx.x} * kTile;
  const std::int64_t first_out = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t end = op.offsets.device[blockIdx.z + 1];
  float c[kTile / 8][4] = {};
  float bias = 0.0F;  // of column first_out + threadIdx.x
  const auto load = [&](int to, std::int64_t row) {
    load_tile<kTile, kTile>(
        tiles.a(to),
        columns_of(static_cast<const T*>(op.dy), op.dy_stride, first_out, out, aligned), row, end);
    load_tile<kTile, kTile>(
        tiles.b(to), columns_of(static_cast<const T*>(op.x), op.x_stride, first_in, in, aligned),
        row, end);
  };
  for_each_tile(op.offsets.device[blockIdx.z], end, stage, load, [&](int from) {
    const T* dy = tiles.a(from);
    multiply_tiles<Product::ColumnsByColumns>(c, dy, tiles.b(from), warp_row);
    if (op.dbias != nullptr && blockIdx.x == 0 && threadIdx.x < kTile)
      for (int r = 0; r < kTile; ++r)
        bias += to_float(dy[r * kTileStride<T, kTile> + static_cast<int>(threadIdx.x)]);
  });
  float* dweight = op.dweight + (std::int64_t{blockIdx.z} * out * in + first_in);
  const std::int64_t left = in - first_in;
  if (op.accumulate) {
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
      for (int i = 0; i < 4; ++i) {
        const std::int64_t o = first_out + warp_row + lane_row() + i / 2 * 8;
        const int column = 8 * n + lane_column() + i % 2;
        if (o < out && column < left) c[n][i] += dweight[o * in + column];
      }
    }
  }
  const float one[2] = {1.0F, 1.0F};
  store_rows<kTile>(dweight, in, static_cast<int>(left < kTile ? left : kTile),
                    first_out + warp_row, out, c, one);
  const std::int64_t o = first_out + threadIdx.x;
  if (op.dbias != nullptr && blockIdx.x == 0 && threadIdx.x < kTile && o < out) {
    float* to = op.dbias + std::int64_t{blockIdx.z} * out + o;
    *to = op.accumulate ? *to + bias : bias;
  }
}

template <class T>
constexpr std::size_t kSharedBytes = tile_bytes<T, kTile>(2 * kTile * kStages);

void require_device_offsets(const GroupOffsets& offsets) {
  require_invariant(offsets.device != nullptr, "group offsets lie in device memory");
}

template <Product product>
void enqueue_rows(const Context& context, const RowsOperands& op, DType dtype,
                  std::int64_t max_rows) {
  require_device_offsets({op.offsets, nullptr});
  const std::int64_t most =
      (ceil_div(max_rows, kTile) + op.num_groups) * ceil_div(op.columns, kTile);
  const std::int64_t blocks = std::int64_t{context.num_sms} * kBlocksPerSm;
  with_float_type(dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const bool aligned = allows_packs(kPackWidth<T>, {{op.x, op.x_stride, sizeof(T)},
                                                      {op.weight, op.weight_columns, sizeof(T)}}) &&
                         op.depth % kPackWidth<T> == 0 && op.columns % kPackWidth<T> == 0;
    launch(context,
           {.grid = dim3(static_cast<unsigned>(most < blocks ? most : blocks)),
            .block = dim3(kThreads),
            .shared_bytes = kSharedBytes<T>},
           grouped_rows_kernel<T, product>, op, aligned);
  });
}

}  // namespace

void enqueue(const Context& context, const GroupedLinearForward& op) {
  enqueue_rows<Product::RowsByRows>(context,
                                    {.num_groups = op.shape.num_groups,
                                     .depth = op.shape.in_features,
                                     .columns = op.shape.out_features,
                                     .offsets = op.offsets.device,
                                     .x = op.x,
                                     .x_stride = op.x_stride,
                                     .weight = op.weight,
                                     .weight_columns = op.shape.in_features,
                                     .bias = op.bias,
                                     .y = op.y,
                                     .y_stride = op.y_stride},
                                    op.dtype, op.shape.max_rows);
}

void enqueue(const Context& context, const GroupedLinearInputGrad& op) {
  enqueue_rows<Product::RowsByColumns>(context,
                                       {.num_groups = op.shape.num_groups,
                                        .depth = op.shape.out_features,
                                        .columns = op.shape.in_features,
                                        .offsets = op.offsets.device,
                                        .x = op.dy,
                                        .x_stride = op.dy_stride,
                                        .weight = op.weight,
                                        .weight_columns = op.shape.in_features,
                                        .bias = nullptr,
                                        .y = op.dx,
                                        .y_stride = op.dx_stride},
                                       op.dtype, op.shape.max_rows);
}

void enqueue(const Context& context, const GroupedLinearWeightGrad& given) {
  require_device_offsets(given.offsets);
  GroupedLinearWeightGrad op = given;
  if (op.dweight == nullptr) {  // of x no columns are read
    op.shape.in_features = 0;
    op.x = op.dy;
    op.x_stride = op.dy_stride;
  }
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const bool aligned =
        allows_packs(kPackWidth<T>,
                     {{op.x, op.x_stride, sizeof(T)}, {op.dy, op.dy_stride, sizeof(T)}}) &&
        op.shape.in_features % kPackWidth<T> == 0 && op.shape.out_features % kPackWidth<T> == 0;
    launch(context,
           {.grid = dim3(static_cast<unsigned>(
                             std::max<std::int64_t>(1, ceil_div(op.shape.in_features, kTile))),
                         static_cast<unsigned>(ceil_div(op.shape.out_features, kTile)),
                         static_cast<unsigned>(op.shape.num_groups)),
            .block = dim3(kThreads),
            .shared_bytes = kSharedBytes<T>},
           grouped_weight_grad_kernel<T>, op, aligned);
  });
}

}  // namespace meshplan::kernels::cuda
