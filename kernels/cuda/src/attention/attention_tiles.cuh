// What the attention kernels share: which keys a query sees, tiles in shared memory, and products
// of a warp's 16 rows with a tile.
#pragma once

#include "device/async_copy.cuh"
#include "device/fragments.cuh"
#include "device/soft_cap.cuh"
#include "kernels/attention/attention.hpp"

namespace meshplan::kernels::cuda {

constexpr int kWarpRows = 16;  // rows of a warp's fragments
constexpr float kInfinity = __builtin_huge_valf();
constexpr float kLog2e = 1.4426950408889634F;
constexpr float kLn2 = 0.6931471805599453F;

/// Half-open.
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  __device__ bool contains(std::int64_t i) const { return i >= begin && i < end; }
};

/// The rule of AttentionShape for one sequence that has `num_keys` real keys.
struct Visibility {
  std::int64_t num_keys;
  std::int64_t query_len;
  std::int64_t offset;
  std::int64_t window;  // 0 = unlimited
  bool causal;
  const std::int32_t* ranges = nullptr;  // (Q, 2) of this sequence, or null

  template <class Op>
  __device__ Visibility(const Op& op, std::int64_t sequence)
      : Visibility(op.shape, op.key_lengths, sequence) {
    if (op.key_ranges != nullptr) ranges = op.key_ranges + 2 * sequence * query_len;
  }
  __device__ Visibility(const AttentionShape& shape, const std::int32_t* key_lengths,
                        std::int64_t sequence)
      : num_keys(shape.key_len),
        query_len(shape.query_len),
        offset(shape.query_offset),
        window(shape.window),
        causal(shape.causal) {
    if (key_lengths != nullptr && key_lengths[sequence] < num_keys)
      num_keys = key_lengths[sequence];
  }
  /// Keys that a query sees; none where begin >= end.
  __device__ Span keys_of(std::int64_t query) const {
    if (ranges != nullptr) {
      if (query >= query_len) query = query_len - 1;  // of a tile's rows beyond the end
      Span listed{ranges[2 * query], ranges[2 * query + 1]};
      if (window > 0 && listed.end - window > listed.begin) listed.begin = listed.end - window;
      return listed;
    }
    const std::int64_t position = query + offset;
    Span keys{0, num_keys};
    if (causal && position + 1 < keys.end) keys.end = position + 1;
    if (window > 0 && position - window + 1 > 0) keys.begin = position - window + 1;
    return keys;
  }
  /// Keys that any of the queries [first, first + count) sees: both ends grow with the query.
  __device__ Span keys_of(std::int64_t first, std::int64_t count) const {
    return {keys_of(first).begin, keys_of(first + count - 1).end};
  }
  /// The first tile of kKeys keys from `key` on that one of the queries [first, first + count)
  /// sees; at or beyond `end` if none is left. All threads of the block must call it, at least
  /// `count` of them. Only listed ranges leave gaps.
  __device__ std::int64_t next_tile(std::int64_t key, std::int64_t end, int tile,
                                    std::int64_t first, int count) const {
    if (ranges == nullptr) return key;
    for (; key < end; key += tile) {
      const auto i = static_cast<int>(threadIdx.x);
      const Span keys = keys_of(first + i);
      const bool sees =
          i < count && keys.begin < keys.end && keys.begin < key + tile && keys.end > key;
      if (__syncthreads_or(sees ? 1 : 0) != 0) break;
    }
    return key;
  }
  /// The first query for which `holds`, which holds for all after it; query_len if none.
  template <class Predicate>
  __device__ std::int64_t first_query(Predicate holds) const {
    std::int64_t low = 0;
    for (std::int64_t high = query_len; low < high;) {
      const std::int64_t middle = (low + high) / 2;
      if (holds(keys_of(middle)))
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
  /// Queries that see any of the keys [first, first + count).
  __device__ Span queries_of(std::int64_t first, std::int64_t count) const {
    std::int64_t last = first + count - 1;
    if (ranges != nullptr)
      return {first_query([&](Span keys) { return keys.end > first; }),
              first_query([&](Span keys) { return keys.begin > last; })};
    if (last >= num_keys) last = num_keys - 1;
    if (last < first) return {0, 0};
    Span queries{0, query_len};
    if (causal && first - offset > 0) queries.begin = first - offset;
    if (window > 0 && last + window - offset < queries.end) queries.end = last + window - offset;
    return queries;
  }
};

/// Rows of a tile are 16 bytes further apart than they are long: ldmatrix and 16-byte loads of 8
/// rows then meet different banks.
template <class T, int kHead>
constexpr int kTileStride = kHead + 16 / static_cast<int>(sizeof(T));

template <class T, int kHead>
constexpr std::size_t tile_bytes(int rows) {
  return static_cast<std::size_t>(rows) * kTileStride<T, kHead> * sizeof(T);
}

/// One head of a row-major operand.
template <class T>
struct HeadRows {
  const T* first;       // its element in row 0 of the sequence
  std::int64_t stride;  // elements
  int columns;          // head size, at most kHead
  bool aligned;         // every row begins at a multiple of 16 bytes and `columns` fills whole ones
};

/// Starts to copy rows [row, row + kRows) into a tile; rows from `end` on and columns from the head
/// size on become zero. wait_for_copies() and a barrier complete it.
template <int kRows, int kHead, class T>
__device__ void load_tile(T* tile, const HeadRows<T>& from, std::int64_t row, std::int64_t end) {
  constexpr int kWide = 16 / static_cast<int>(sizeof(T));
  constexpr int kChunks = kHead / kWide;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks;
       i += static_cast<int>(blockDim.x)) {
    const int r = i / kChunks;
    const int column = i % kChunks * kWide;
    T* to = tile + r * kTileStride<T, kHead> + column;
    const T* source = from.first + (row + r) * from.stride + column;
    if (from.aligned && row + r < end && column < from.columns) {
      copy_async(to, source);
    } else {
      for (int j = 0; j < kWide; ++j)
        to[j] = row + r < end && column + j < from.columns ? source[j] : from_float<T>(0.0F);
    }
  }
}

/// c (16, kColumns) = rows of `a` (16, kHead) times rows of `b` (kColumns, kHead), transposed.
template <int kColumns, int kHead, class T>
__device__ void multiply_rows(float (&c)[kColumns / 8][4], const T* a, const T* b) {
  using F = Fragments<T>;
  for (auto& tile : c)
    for (float& value : tile) value = 0.0F;
#pragma unroll 2  // in full it takes nvcc minutes and gains nothing: k only moves addresses
  for (int k = 0; k < kHead; k += F::kDepth) {
    const auto rows = F::load_a(a + k, kTileStride<T, kHead>);
#pragma unroll
    for (int n = 0; n < kColumns; n += 16) {
      typename F::B columns[2];
      F::load_b(columns, b + n * kTileStride<T, kHead> + k, kTileStride<T, kHead>);
      F::multiply(c[n / 8], rows, columns[0]);
      F::multiply(c[n / 8 + 1], rows, columns[1]);
    }
  }
}

/// out (16, kOut) += p (16, kRows) times columns [0, kOut) of `b` (kRows, kHead); p comes as
/// accumulators and is rounded to T.
template <int kRows, int kHead, int kOut, class T>
__device__ void accumulate_rows(float (&out)[kOut / 8][4], const float (&p)[kRows / 8][4],
                                const T* b) {
  using F = Fragments<T>;
#pragma unroll
  for (int k = 0; k < kRows; k += F::kDepth) {
    const auto rows = F::from_accumulators(p + k / 8);
#pragma unroll
    for (int n = 0; n < kOut; n += 16) {
      typename F::B columns[2];
      F::load_b_rows(columns, b + k * kTileStride<T, kHead> + n, kTileStride<T, kHead>);
      F::multiply(out[n / 8], rows, columns[0]);
      F::multiply(out[n / 8 + 1], rows, columns[1]);
    }
  }
}

/// Writes a warp's accumulators, times a factor for each half (rows g and g + 8), to the rows from
/// `row` on that lie before `end`.
template <int kOut, class T>
__device__ void store_rows(T* to, std::int64_t stride, int columns, std::int64_t row,
                           std::int64_t end, const float (&c)[kOut / 8][4],
                           const float (&factor)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t r = row + lane_row() + 8 * half;
    if (r >= end) continue;
#pragma unroll
    for (int n = 0; n < kOut / 8; ++n) {
      for (int j = 0; j < 2; ++j) {
        const int column = 8 * n + lane_column() + j;
        if (column < columns)
          to[r * stride + column] = from_float<T>(c[n][2 * half + j] * factor[half]);
      }
    }
  }
}

/// What turns a score, or with a soft cap the capped score, into an exponent of 2.
__device__ inline float exponent_scale(const AttentionShape& shape) {
  return (shape.softcap > 0.0F ? 1.0F : shape.scale) * kLog2e;
}
/// q k, scaled and capped where there is a cap; else as it is.
__device__ inline float capped_score(const AttentionShape& shape, float score) {
  return shape.softcap > 0.0F ? soft_capped(score * shape.scale, shape.softcap) : score;
}

/// Over the four lanes that hold a row of C.
__device__ inline float quad_max(float x) {
  for (int step = 1; step < 4; step *= 2) {
    const float other = __shfl_xor_sync(kAllLanes, x, step);
    x = other > x ? other : x;
  }
  return x;
}
__device__ inline float quad_sum(float x) {
  for (int step = 1; step < 4; step *= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

/// Sizes of a kernel's tiles. A warp does 16 rows of the outer tile, the inner one is walked.
/// Larger heads get smaller inner tiles, so that accumulators stay in registers and fp32 tiles fit
/// into the 163 KiB of shared memory that A100 offers.
template <class T, int kHead>
struct AttentionTiles {
  static constexpr bool kWide = sizeof(T) == 4;
  static constexpr int kWarps = kWide && kHead > 128 ? 2 : 4;
  static constexpr int kOuter = kWarps * kWarpRows;
  static constexpr int kBackwardInner = kWide && kHead > 128 ? 16 : 32;
  static constexpr int kInner = kWide || kHead > 128 ? kBackwardInner : 64;  // of the forward
};

}  // namespace meshplan::kernels::cuda
