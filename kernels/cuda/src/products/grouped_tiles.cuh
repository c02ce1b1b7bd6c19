// How the kernels of grouped products finish a tile.
#pragma once

#include "device/fragments.cuh"
#include "products/grouped_walk.cuh"

namespace meshplan::kernels::cuda {

/// A warp's share of a tile of the result: 16 rows, all columns of the tile. `whole`: rows begin at
/// multiples of 16 bytes and have a multiple of 8 numbers.
template <class Out, int kTileColumns>
struct WarpRows {
  using Sums = float[kTileColumns / 8][4];

  Out* first;  // row `row`, the tile's first column
  std::int64_t stride;
  std::int64_t row, end_row;
  std::int64_t columns;  // left from the tile's first one on
  bool whole;

  /// body(row of C's halves 0 and 1, its address) for the rows that exist
  template <class Body>
  __device__ void for_each_row(const Body& body) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = lane_row() + 8 * half;
      if (row + r < end_row) body(half, first + r * stride);
    }
  }

  /// c += what is there.
  __device__ void add_to(Sums& c) const {
    for_each_row([&](int half, const Out* from) {
#pragma unroll
      for (int n = 0; n < kTileColumns / 8; ++n) {
        const int column = 8 * n + lane_column();
        if (whole && column < columns) {
          const Pack<2> pair = load_pack<2>(from + column);
          for (int j = 0; j < 2; ++j) c[n][2 * half + j] += pair[j];
        } else if (!whole) {
          for (int j = 0; j < 2; ++j)
            if (column + j < columns) c[n][2 * half + j] += to_float(from[column + j]);
        }
      }
    });
  }

  __device__ void store(const Sums& c) const {
    if constexpr (sizeof(Out) == 2) {
      if (whole) return store_eights(c);
    }
    for_each_row([&](int half, Out* to) {
#pragma unroll
      for (int n = 0; n < kTileColumns / 8; ++n) {
        const int column = 8 * n + lane_column();
        if constexpr (sizeof(Out) == 4) {
          if (whole) {
            if (column < columns)
              store_pack<2>(to + column, Pack<2>{{c[n][2 * half], c[n][2 * half + 1]}});
            continue;
          }
        }
        for (int j = 0; j < 2; ++j)
          if (column + j < columns) to[column + j] = from_float<Out>(c[n][2 * half + j]);
      }
    });
  }

 private:
  /// 16 bytes at a time: of four tiles of eight columns side by side, the four lanes of a row hold
  /// two columns each; they exchange them so that lane t has all of tile t.
  __device__ void store_eights(const Sums& c) const {
    static_assert(kTileColumns % 32 == 0);
    const int t = lane_column() / 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = lane_row() + 8 * half;
      Out* to = first + r * stride;
#pragma unroll
      for (int n = 0; n < kTileColumns / 8; n += 4) {
        unsigned word[4];
        for (int i = 0; i < 4; ++i)
          word[i] = Fragments<Out>::pack(c[n + i][2 * half], c[n + i][2 * half + 1]);
        transpose_in_quad(word, t);
        const int column = 8 * (n + t);
        if (row + r < end_row && column < columns)
          *reinterpret_cast<uint4*>(to + column) = make_uint4(word[0], word[1], word[2], word[3]);
      }
    }
  }
  /// word[i] of lane t becomes word[t] of lane i of the four.
  __device__ static void transpose_in_quad(unsigned (&word)[4], int t) {
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
      const bool upper = (t & step) != 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((i & step) != 0) continue;
        const unsigned other = __shfl_xor_sync(kAllLanes, upper ? word[i] : word[i + step], step);
        (upper ? word[i] : word[i + step]) = other;
      }
    }
  }
};

/// Adds the bias or what is there to a warp's rows of a tile, from the tile's row `warp_row` on,
/// and writes them.
template <Product product, class T, int kTileColumns>
__device__ void finish_tile(const GroupedProduct& op, const GroupedTile& at, int warp_row,
                            float (&c)[kTileColumns / 8][4], bool whole) {
  constexpr bool kGroupsDivideDepth = product == Product::ColumnsByColumns;
  using Out = std::conditional_t<kGroupsDivideDepth, float, T>;
  const std::int64_t columns = op.columns - at.first_column;
  if (!kGroupsDivideDepth && op.bias != nullptr) {
    const T* bias = static_cast<const T*>(op.bias) + at.group * op.columns + at.first_column;
#pragma unroll
    for (int n = 0; n < kTileColumns / 8; ++n) {
      for (int i = 0; i < 4; ++i) {
        const int column = 8 * n + lane_column() + i % 2;
        if (column < columns) c[n][i] += to_float(bias[column]);
      }
    }
  }
  const std::int64_t row = at.first_row + warp_row;
  Out* result = static_cast<Out*>(op.result) + row * op.result_stride + at.first_column;
  if (kGroupsDivideDepth) result += at.group * op.rows * op.result_stride;
  const WarpRows<Out, kTileColumns> rows{result, op.result_stride, row, at.end_row, columns, whole};
  if constexpr (kGroupsDivideDepth) {
    if (op.accumulate) rows.add_to(c);
  }
  rows.store(c);
}

}  // namespace meshplan::kernels::cuda
