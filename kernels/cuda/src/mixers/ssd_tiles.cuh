// Products of a state-space mixer in tiles of 64 x 64, fp32 by plain FMA, and decays between tokens
// of a chunk.
#pragma once

#include "device/device.cuh"
#include "device/dispatch.hpp"
#include "device/launch.cuh"
#include "mixers/ssd_scratch.hpp"

namespace meshplan::kernels::cuda {

constexpr int kSsdTile = 64;
constexpr int kSsdThreads = 256;  // each has 4 x 4 numbers of a tile
constexpr int kSsdOwn = 4;
constexpr int kSsdDepth = 16;  // of the operands in shared memory at once
constexpr int kSsdRowThreads = kSsdTile / kSsdOwn;

/// A thread's numbers of a tile.
struct SsdSums {
  float at[kSsdOwn][kSsdOwn] = {};
};

__device__ inline int ssd_row() {
  return static_cast<int>(threadIdx.x) / kSsdRowThreads * kSsdOwn;
}
__device__ inline int ssd_column() {
  return static_cast<int>(threadIdx.x) % kSsdRowThreads * kSsdOwn;
}

/// Calls body(row, column, sum) for a thread's numbers.
template <class Body>
__device__ void for_each_sum(SsdSums& sums, const Body& body) {
  for (int r = 0; r < kSsdOwn; ++r)
    for (int c = 0; c < kSsdOwn; ++c) body(ssd_row() + r, ssd_column() + c, sums.at[r][c]);
}

struct SsdOperands {
  float a[kSsdDepth][kSsdTile + kSsdOwn];
  float b[kSsdDepth][kSsdTile + kSsdOwn];
};

template <bool by_depth, class Value>
__device__ void load_operand(float (&to)[kSsdDepth][kSsdTile + kSsdOwn], std::int64_t first,
                             std::int64_t depth, const Value& value) {
  for (int i = static_cast<int>(threadIdx.x); i < kSsdDepth * kSsdTile; i += kSsdThreads) {
    const int k = by_depth ? i % kSsdDepth : i / kSsdTile;
    const int other = by_depth ? i / kSsdDepth : i % kSsdTile;
    to[k][other] = first + k < depth ? value(other, first + k) : 0.0F;
  }
}

/// sums += A B with A (64, depth) and B (depth, 64) from a(row, k) and b(k, column), which are
/// asked for every row and column of the tile. `a_by_depth`, `b_by_depth`: what lies side by side
/// in memory differs in k.
template <bool a_by_depth, bool b_by_depth, class A, class B>
__device__ void multiply_tile(SsdSums& sums, std::int64_t depth, const A& a, const B& b) {
  SsdOperands& operands = block_shared<SsdOperands>();
  for (std::int64_t first = 0; first < depth; first += kSsdDepth) {
    __syncthreads();  // an earlier product may still be read, and what a and b read be written
    load_operand<a_by_depth>(operands.a, first, depth, a);
    load_operand<b_by_depth>(operands.b, first, depth,
                             [&](int column, std::int64_t k) { return b(k, column); });
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kSsdDepth; ++k)
      for (int r = 0; r < kSsdOwn; ++r)
        for (int c = 0; c < kSsdOwn; ++c)
          sums.at[r][c] += operands.a[k][ssd_row() + r] * operands.b[k][ssd_column() + c];
  }
}

/// A tile that the whole block reads: an operand of the next product.
struct SsdTile {
  float at[kSsdTile][kSsdTile + 1];
};

/// Sum over the threads that share a tile's rows; all of the block must call it.
__device__ inline float sum_of_row(float value) {
  for (int distance = kSsdRowThreads / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

/// A chunk of a sequence; tokens are counted inside of it.
struct SsdChunk {
  std::int64_t index;  // among the chunks of all sequences
  std::int64_t sequence;
  std::int64_t of_sequence;  // its number there
  std::int64_t first;        // row
  int length;

  __device__ SsdChunk(const SsdShape& shape, std::int64_t chunk)
      : index(chunk),
        sequence(chunk / shape.num_chunks()),
        of_sequence(chunk - sequence * shape.num_chunks()),
        first(sequence * shape.seq_len + of_sequence * shape.chunk_size) {
    const std::int64_t left = shape.seq_len - of_sequence * shape.chunk_size;
    length = static_cast<int>(left < shape.chunk_size ? left : shape.chunk_size);
  }
};

/// One head's decays in a chunk.
struct SsdHeadDecays {
  const float* steps;
  const float* high;
  const float* low;
  const std::int32_t* begins;
  std::int64_t stride;
  int last;

  __device__ SsdHeadDecays(const SsdDecays& decays, const SsdShape& shape, const SsdChunk& chunk,
                           std::int64_t head)
      : steps(decays.step + chunk.first * shape.heads + head),
        high(decays.high + chunk.first * shape.heads + head),
        low(decays.low + chunk.first * shape.heads + head),
        begins(decays.begin == nullptr ? nullptr : decays.begin + chunk.first),
        stride(shape.heads),
        last(chunk.length - 1) {}

  __device__ float step(std::int64_t i) const { return steps[i * stride]; }
  /// Of what a source gives a target; zero if the target does not see it. Both are in the chunk.
  __device__ float between(std::int64_t source, std::int64_t target) const {
    if (source > target || (begins != nullptr && source < begins[target])) return 0.0F;
    return expf((high[target * stride] - high[source * stride]) +
                (low[target * stride] - low[source * stride]));
  }
  /// Of the state on entry; zero behind the first document's begin.
  __device__ float from_start(std::int64_t i) const {
    if (begins != nullptr && begins[i] >= 0) return 0.0F;
    return expf(high[i * stride] + low[i * stride]);
  }
  __device__ float to_end(std::int64_t i) const { return between(i, last); }
  __device__ float across() const { return from_start(last); }
};

/// Rows of x, b, c (and dy) of a chunk. Those beyond its tokens are zero.
template <class T>
struct SsdRows {
  const T* data;
  std::int64_t stride;
  int rows;
  std::int64_t columns;
  __device__ float operator()(std::int64_t row, std::int64_t column) const {
    return row < rows && column < columns ? to_float(data[row * stride + column]) : 0.0F;
  }
};

template <class T, class Op>
__device__ SsdRows<T> x_rows(const Op& op, const SsdChunk& chunk, std::int64_t head) {
  return {static_cast<const T*>(op.xbc) + chunk.first * op.xbc_stride + head * op.shape.head_size,
          op.xbc_stride, chunk.length, op.shape.head_size};
}
template <class T, class Op>
__device__ SsdRows<T> b_rows(const Op& op, const SsdChunk& chunk, std::int64_t group) {
  return {static_cast<const T*>(op.xbc) + chunk.first * op.xbc_stride + op.shape.columns() +
              group * op.shape.state_size,
          op.xbc_stride, chunk.length, op.shape.state_size};
}
template <class T, class Op>
__device__ SsdRows<T> c_rows(const Op& op, const SsdChunk& chunk, std::int64_t group) {
  return b_rows<T>(op, chunk, op.shape.groups + group);
}

/// A state (P, N); zero beyond it.
struct SsdState {
  const float* data;
  std::int64_t head_size;
  std::int64_t state_size;
  __device__ SsdState(const float* states, const SsdShape& shape, std::int64_t row,
                      std::int64_t head)
      : data(states + (row * shape.heads + head) * shape.head_size * shape.state_size),
        head_size(shape.head_size),
        state_size(shape.state_size) {}
  __device__ float operator()(std::int64_t p, std::int64_t n) const {
    return p < head_size && n < state_size ? data[p * state_size + n] : 0.0F;
  }
};

__device__ inline std::int64_t group_of(const SsdShape& shape, std::int64_t head) {
  return head / (shape.heads / shape.groups);
}

inline unsigned ssd_tiles(std::int64_t size) {
  return static_cast<unsigned>(ceil_div(size, kSsdTile));
}
/// Tiles of a chunk's tokens.
inline unsigned ssd_token_tiles(const SsdShape& shape) {
  return ssd_tiles(shape.chunk_size < shape.seq_len ? shape.chunk_size : shape.seq_len);
}
/// A block for every chunk, times others.
inline LaunchShape ssd_launch(const SsdShape& shape, std::int64_t tiles, std::int64_t heads) {
  return {.grid = dim3(static_cast<unsigned>(shape.num_sequences * shape.num_chunks()),
                       static_cast<unsigned>(tiles), static_cast<unsigned>(heads)),
          .block = dim3(kSsdThreads)};
}
/// A thread for every number of a state, a block row for every head and sequence.
inline LaunchShape ssd_state_launch(const SsdShape& shape) {
  return {
      .grid = dim3(static_cast<unsigned>(ceil_div(shape.head_size * shape.state_size, kSsdThreads)),
                   static_cast<unsigned>(shape.heads), static_cast<unsigned>(shape.num_sequences)),
      .block = dim3(kSsdThreads)};
}

/// out (P, N) of a chunk = the sum over its tokens of factor(i) rows(i, p) columns(i, n).
template <class T, class Factor>
__device__ void sum_outer_products(float* out, const SsdShape& shape, const SsdRows<T>& rows,
                                   const SsdRows<T>& columns, const Factor& factor) {
  const auto across = static_cast<unsigned>((shape.state_size + kSsdTile - 1) / kSsdTile);
  const std::int64_t first_p = std::int64_t{blockIdx.y / across} * kSsdTile;
  const std::int64_t first_n = std::int64_t{blockIdx.y % across} * kSsdTile;
  SsdSums sums;
  multiply_tile<false, false>(
      sums, rows.rows, [&](int p, std::int64_t i) { return rows(i, first_p + p) * factor(i); },
      [&](std::int64_t i, int n) { return columns(i, first_n + n); });
  for_each_sum(sums, [&](int row, int column, float sum) {
    const std::int64_t p = first_p + row;
    const std::int64_t n = first_n + column;
    if (p < shape.head_size && n < shape.state_size) out[p * shape.state_size + n] = sum;
  });
}
inline std::int64_t ssd_state_tiles(const SsdShape& shape) {
  return std::int64_t{ssd_tiles(shape.head_size)} * ssd_tiles(shape.state_size);
}

}  // namespace meshplan::kernels::cuda
