// What both passes of a state-space mixer need of a chunk: its documents, packed operands, scores,
// steps and decays. Tokens are counted inside of the chunk; a weight's row is its source, its
// column the target, source <= target.
#pragma once

#include "device/padding.hpp"
#include "mixers/ssd_layout.hpp"
#include "simd/kernels.hpp"
#include "simd/packed_rows.hpp"
#include "simd/small_gemm.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

struct Chunk {
  int64_t index;          // in its sequence
  int64_t first;          // its first row
  int64_t length;         // tokens
  int64_t columns;        // `length` in whole vectors
  int64_t carried;        // tokens that see the state on entry: those before the first document
  int64_t last_document;  // first token of the document that the chunk ends in
};

/// Rows of an operand.
template <class T>
struct Rows {
  const T* data;
  int64_t stride;
};

MESHPLAN_INLINE Chunk chunk_of(const SsdShape& shape, int64_t sequence, int64_t index) {
  const int64_t begin = index * shape.chunk_size;
  const int64_t length = least(shape.chunk_size, shape.seq_len - begin);
  return {index, sequence * shape.seq_len + begin, length, round_up(length, kLanes), length, 0};
}

/// Fills in `ends`, one behind the last token of each token's document, and where documents begin.
inline void find_documents(Chunk& chunk, const int32_t* positions, int32_t* ends) {
  int32_t end = static_cast<int32_t>(chunk.length);
  for (int64_t i = chunk.length - 1; i >= 0; --i) {
    ends[i] = end;
    if (positions == nullptr || positions[chunk.first + i] != 0) continue;
    chunk.last_document = most(chunk.last_document, i);
    chunk.carried = i;
    end = static_cast<int32_t>(i);
  }
}

/// Where a head's state begins in states that have all heads in each row.
MESHPLAN_INLINE int64_t state_offset(const SsdShape& shape, int64_t row, int64_t head) {
  return (row * shape.heads + head) * shape.head_size * shape.state_size;
}

MESHPLAN_INLINE void scale_row(float* row, int64_t size, float factor) {
  for (int64_t i = 0; i < size; i += kLanes) store(row + i, load(row + i) * factor);
}

MESHPLAN_INLINE float dot(const float* a, const float* b, int64_t size) {
  Vec products{};
  for (int64_t i = 0; i < size; i += kLanes) products += load(a + i) * load(b + i);
  return sum(products);
}

/// b, c and their scores, which the heads of a group share. `b` begins at the chunk's first token;
/// c is G N further in each row.
template <class T>
void pack_group(const SsdShape& shape, const SsdLayout& layout, float* scratch, const Chunk& chunk,
                Rows<T> b) {
  const int64_t c_offset = shape.groups * shape.state_size;
  pack_rows(scratch + layout.b, layout.state, b.data, b.stride, shape.state_size, chunk.length,
            chunk.columns);
  pack_rows(scratch + layout.c, layout.state, b.data + c_offset, b.stride, shape.state_size,
            chunk.length, chunk.columns);
  transpose(scratch + layout.c_transposed, layout.chunk, scratch + layout.c, layout.state,
            chunk.columns, layout.state);
  for (int64_t source = 0; source < chunk.length; source += kSsdSources)
    small_gemm({.c = scratch + layout.scores + source * layout.chunk + source,
                .c_stride = layout.chunk,
                .a = scratch + layout.b + source * layout.state,
                .a_row_stride = layout.state,
                .a_column_stride = 1,
                .b = scratch + layout.c_transposed + source,
                .b_stride = layout.chunk,
                .m = least(kSsdSources, chunk.length - source),
                .n = chunk.columns - source,
                .k = shape.state_size,
                .accumulate = false});
}

/// log(1 + e^x) = max(x, 0) + 2 atanh(z / (2 + z)) with z = e^-|x|, by its series: the next term is
/// below 1e-9 of the sum.
MESHPLAN_INLINE Vec softplus(Vec x) {
  const Vec z = exp(-abs(x));
  const Vec t = z / (2.0F + z);
  const Vec square = t * t;
  Vec series = splat(1.0F / 15.0F);
  series = series * square + 1.0F / 13.0F;
  series = series * square + 1.0F / 11.0F;
  series = series * square + 1.0F / 9.0F;
  series = series * square + 1.0F / 7.0F;
  series = series * square + 1.0F / 5.0F;
  series = series * square + 1.0F / 3.0F;
  series = series * square + 1.0F;
  return max(x, Vec{}) + 2.0F * t * series;
}

struct HeadWeights {
  float a;  // -exp(a_log)
  float d;
  float dt_bias;
};

template <class T, class Op>
MESHPLAN_INLINE HeadWeights weights_of(const Op& op, int64_t head) {
  const auto value = [head](const void* data) {
    return load(static_cast<const T*>(data) + head, Tail{1})[0];
  };
  return {-exp(splat(value(op.a_log)))[0], value(op.d), value(op.dt_bias)};
}

/// Steps of one head, and with `slope` their derivative with respect to dt. Zero beyond the chunk.
template <class T>
void find_steps(const StepLimits& limits, const Chunk& chunk, Rows<T> dt, float bias, float* step,
                float* slope) {
  for (int64_t i = 0; i < chunk.columns; ++i)
    step[i] = i < chunk.length ? load(dt.data + i * dt.stride, Tail{1})[0] + bias : 0.0F;
  for (int64_t i = 0; i < chunk.columns; i += kLanes) {
    const Vec raw = load(step + i);
    const Vec smooth = softplus(raw);
    const Vec limited = min(max(smooth, splat(limits.lower)), splat(limits.upper));
    store(step + i, limited);
    if (slope != nullptr) store(slope + i, limited == smooth ? sigmoid(raw) : Vec{});
  }
  for (int64_t i = chunk.length; i < chunk.columns; ++i) step[i] = 0.0F;
}

/// Decays of one head between any two tokens of a chunk: exp(s_i - s_j), s the running sums of
/// a dt'. Sums are fp64, each split into a multiple of 2^-8 and a small rest, so that differences
/// are exact to fp32 however large the sums are.
struct Decays {
  const float* high;
  const float* low;
  float* ahead;  // from a block's last source on, see begin_sources

  MESHPLAN_INLINE Vec between(int64_t source, int64_t target) const {
    return exp((load(high + target) - high[source]) + (load(low + target) - low[source]));
  }
  MESHPLAN_INLINE float between_two(int64_t source, int64_t target) const {
    return exp(splat((high[target] - high[source]) + (low[target] - low[source])))[0];
  }
  /// Prepares the block of sources whose last one this is: the decay to targets behind the block is
  /// a product of two, of which each is at most 1.
  MESHPLAN_INLINE void begin_sources(int64_t last, int64_t columns) const {
    for (int64_t i = round_up(last + 1, kSsdSources); i < columns; i += kLanes)
      store(ahead + i, between(last, i));
  }
};

/// The decays from one source.
struct DecayRow {
  const Decays& decays;
  int64_t source;
  int64_t end;         // of its document
  int64_t behind;      // first target behind its block
  float to_block_end;  // decay

  /// From the source to targets [target, target + kLanes); zero where they do not see it.
  MESHPLAN_INLINE Vec to(int64_t target) const {
    const Vec decay = target < behind ? decays.between(source, target)
                                      : load(decays.ahead + target) * to_block_end;
    if (target >= source && target + kLanes <= end) return decay;
    const IntVec index = iota() + static_cast<int32_t>(target);
    const IntVec seen =
        (index >= static_cast<int32_t>(source)) & (index < static_cast<int32_t>(end));
    return seen ? decay : Vec{};
  }
};

/// One head's steps and decays in one chunk.
struct HeadDecays {
  Decays between;
  const float* step;
  const float* from_start;  // of the state on entry; zero behind the first document's begin
  const float* to_end;      // of a source; zero before the last document
  float across;             // of the state on entry to the chunk's end

  MESHPLAN_INLINE DecayRow row(int64_t source, int64_t last, const int32_t* ends) const {
    return {between, source, ends[source], round_up(last + 1, kSsdSources),
            between.between_two(source, last)};
  }
};

/// From the steps in scratch.
inline HeadDecays find_decays(const SsdLayout& layout, float* scratch, const Chunk& chunk,
                              float a) {
  constexpr double kToGrid = 0x1.8p44;  // adding it rounds to multiples of 2^-8
  float* high = scratch + layout.decay_high;
  float* low = scratch + layout.decay_low;
  float* from_start = scratch + layout.from_start;
  float* to_end = scratch + layout.to_end;
  const float* step = scratch + layout.step;
  double sum = 0.0;
  for (int64_t i = 0; i < chunk.columns; ++i) {
    sum += static_cast<double>(step[i]) * static_cast<double>(a);
    const double on_grid = (sum + kToGrid) - kToGrid;
    high[i] = static_cast<float>(on_grid);
    low[i] = static_cast<float>(sum - on_grid);
  }
  const int64_t last = chunk.length - 1;
  for (int64_t i = 0; i < chunk.columns; i += kLanes) {
    const IntVec index = iota() + static_cast<int32_t>(i);
    const Vec start = exp(load(high + i) + load(low + i));
    const Vec end = exp((high[last] - load(high + i)) + (low[last] - load(low + i)));
    store(from_start + i, index < static_cast<int32_t>(chunk.carried) ? start : Vec{});
    const IntVec in_last = (index >= static_cast<int32_t>(chunk.last_document)) &
                           (index < static_cast<int32_t>(chunk.length));
    store(to_end + i, in_last ? end : Vec{});
  }
  return {{high, low, scratch + layout.ahead}, step, from_start, to_end, from_start[last]};
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
