// What the kernels of the gated delta rule are made of: products by a block, whose operands are
// functions, and a slot's operands.
#pragma once

#include "device/device.cuh"
#include "device/launch.cuh"
#include "device/reduce.cuh"
#include "mixers/gated_delta.hpp"

namespace meshplan::kernels::cuda {

/// Tiles of both operands, depth by depth.
struct DeltaTiles {
  float a[kDeltaDepth][kDeltaTile + 1];
  float b[kDeltaDepth][kDeltaTile];
};

/// Calls out(i, j, sum over k of a(i, k) b(k, j)) for all i < m and j < n, by all threads of the
/// block; a and b may read what the block wrote before. A thread has 4 x 4 numbers of a tile.
template <class A, class B, class Out>
__device__ void block_product(DeltaTiles& tiles, std::int64_t m, std::int64_t n, std::int64_t depth,
                              const A& a, const B& b, const Out& out) {
  constexpr int kOwn = 4;
  constexpr int kAcross = kDeltaTile / kOwn;
  static_assert(kAcross * kAcross == kDeltaThreads);
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / kAcross * kOwn;
  const int column = thread % kAcross * kOwn;
  for (std::int64_t i0 = 0; i0 < m; i0 += kDeltaTile) {
    for (std::int64_t j0 = 0; j0 < n; j0 += kDeltaTile) {
      float sums[kOwn][kOwn] = {};
      for (std::int64_t k0 = 0; k0 < depth; k0 += kDeltaDepth) {
        __syncthreads();
        for (int at = thread; at < kDeltaDepth * kDeltaTile; at += kDeltaThreads) {
          const int i = at / kDeltaDepth;
          const int k = at % kDeltaDepth;
          tiles.a[k][i] = i0 + i < m && k0 + k < depth ? a(i0 + i, k0 + k) : 0.0F;
        }
        for (int at = thread; at < kDeltaDepth * kDeltaTile; at += kDeltaThreads) {
          const int k = at / kDeltaTile;
          const int j = at % kDeltaTile;
          tiles.b[k][j] = j0 + j < n && k0 + k < depth ? b(k0 + k, j0 + j) : 0.0F;
        }
        __syncthreads();
        const int count = depth - k0 < kDeltaDepth ? static_cast<int>(depth - k0) : kDeltaDepth;
        for (int k = 0; k < count; ++k)
#pragma unroll
          for (int i = 0; i < kOwn; ++i)
#pragma unroll
            for (int j = 0; j < kOwn; ++j)
              sums[i][j] += tiles.a[k][row + i] * tiles.b[k][column + j];
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
#pragma unroll
        for (int j = 0; j < kOwn; ++j)
          if (i0 + row + i < m && j0 + column + j < n)
            out(i0 + row + i, j0 + column + j, sums[i][j]);
    }
  }
  __syncthreads();
}

/// A chunk of one value head of one sequence.
template <class T>
struct DeltaSlot {
  const DeltaInputs& in;
  const DeltaScratch& scratch;
  std::int64_t sequence;
  std::int64_t head;
  std::int64_t chunk;
  std::int64_t key_head;
  std::int64_t slot;
  std::int64_t row;  // of its first token
  int count;         // of its tokens

  __device__ DeltaSlot(const DeltaInputs& inputs, const DeltaScratch& memory, std::int64_t b,
                       std::int64_t h, std::int64_t c)
      : in(inputs),
        scratch(memory),
        sequence(b),
        head(h),
        chunk(c),
        key_head(h / (inputs.shape.value_heads / inputs.shape.key_heads)),
        slot((b * inputs.shape.value_heads + h) * inputs.shape.chunks() + c),
        row(b * inputs.shape.seq_len + c * inputs.shape.chunk_len) {
    const std::int64_t left = inputs.shape.seq_len - c * inputs.shape.chunk_len;
    count = static_cast<int>(left < inputs.shape.chunk_len ? left : inputs.shape.chunk_len);
  }

  __device__ float* of_tokens(OfToken which) const {
    const std::int64_t vectors = static_cast<std::int64_t>(OfToken::Count);
    return scratch.of_tokens +
           (slot * vectors + static_cast<std::int64_t>(which)) * in.shape.chunk_len;
  }
  __device__ float of_token(OfToken which, std::int64_t i) const { return of_tokens(which)[i]; }
  /// This slot's part of an array in scratch: (C, C), (C, Ek), (C, Ev) or a state.
  __device__ float* square(float* all) const {
    return all + slot * in.shape.chunk_len * in.shape.chunk_len;
  }
  __device__ float* key_rows(float* all) const {
    return all + slot * in.shape.chunk_len * in.shape.key_size;
  }
  __device__ float* value_rows(float* all) const {
    return all + slot * in.shape.chunk_len * in.shape.value_size;
  }
  template <class Float>
  __device__ Float* state(Float* all) const {
    return all + slot * in.shape.key_size * in.shape.value_size;
  }
  /// The same where there is one state per sequence and head.
  template <class Float>
  __device__ Float* state_of_sequence(Float* all) const {
    return all + (sequence * in.shape.value_heads + head) * in.shape.key_size * in.shape.value_size;
  }

  __device__ std::int64_t value_column() const {
    return 2 * in.shape.key_heads * in.shape.key_size + head * in.shape.value_size;
  }
  __device__ float element(std::int64_t i, std::int64_t column) const {
    return to_float(static_cast<const T*>(in.qkv)[(row + i) * in.qkv_stride + column]);
  }
  __device__ float raw_query(std::int64_t i, std::int64_t e) const {
    return element(i, key_head * in.shape.key_size + e);
  }
  __device__ float raw_key(std::int64_t i, std::int64_t e) const {
    return element(i, (in.shape.key_heads + key_head) * in.shape.key_size + e);
  }
  __device__ float query_scale() const {
    return 1.0F / sqrtf(static_cast<float>(in.shape.key_size));
  }
  __device__ float query(std::int64_t i, std::int64_t e) const {
    return raw_query(i, e) * (of_token(OfToken::QueryNorm, i) * query_scale());
  }
  __device__ float key(std::int64_t i, std::int64_t e) const {
    return raw_key(i, e) * of_token(OfToken::KeyNorm, i);
  }
  __device__ float value(std::int64_t i, std::int64_t e) const {
    return element(i, value_column() + e);
  }
  /// From token j to token i of the chunk; 0 if j is later or of another document.
  __device__ float decay(std::int64_t i, std::int64_t j) const {
    if (j > i || static_cast<float>(j) < of_token(OfToken::Begin, i)) return 0.0F;
    return expf((of_token(OfToken::DecayHigh, i) - of_token(OfToken::DecayHigh, j)) +
                (of_token(OfToken::DecayLow, i) - of_token(OfToken::DecayLow, j)));
  }
};

/// What a token's b and a stand for.
struct DeltaGate {
  float beta;   // sigmoid(b)
  float decay;  // g = -exp(a_log) softplus(a + dt_bias)
  float slope;  // of the decay by a
};

__device__ inline float decay_weight(const void* weights, DType dtype, std::int64_t head) {
  if (dtype == DType::BF16) return to_float(static_cast<const __nv_bfloat16*>(weights)[head]);
  if (dtype == DType::F16) return to_float(static_cast<const __half*>(weights)[head]);
  return static_cast<const float*>(weights)[head];
}

template <class T>
__device__ DeltaGate delta_gate(const DeltaSlot<T>& s, std::int64_t i) {
  const T* ba = static_cast<const T*>(s.in.ba) + (s.row + i) * s.in.ba_stride;
  const float rate = expf(decay_weight(s.in.a_log, s.in.decay_dtype, s.head));
  const float x = to_float(ba[s.in.shape.value_heads + s.head]) +
                  decay_weight(s.in.dt_bias, s.in.decay_dtype, s.head);
  const float e = expf(-fabsf(x));
  const float softplus = fmaxf(x, 0.0F) + log1pf(e);
  const float sigmoid = (x < 0.0F ? e : 1.0F) / (1.0F + e);
  return {1.0F / (1.0F + expf(-to_float(ba[s.head]))), -rate * softplus, -rate * sigmoid};
}

/// Updates of columns [first, first + columns) of the values: u = (I + L)^-1 beta (v - decay S^T
/// k).
template <class T>
__device__ void slot_updates(const DeltaSlot<T>& s, DeltaTiles& tiles, const float* state,
                             std::int64_t first, std::int64_t columns) {
  const std::int64_t values = s.in.shape.value_size;
  float* rhs = s.value_rows(s.scratch.rhs) + first;
  float* updates = s.value_rows(s.scratch.updates) + first;
  const float* inverse = s.square(s.scratch.inverse);
  block_product(
      tiles, s.count, columns, s.in.shape.key_size,
      [&](std::int64_t i, std::int64_t e) { return s.key(i, e); },
      [&](std::int64_t e, std::int64_t j) { return state[e * values + first + j]; },
      [&](std::int64_t i, std::int64_t j, float sum) {
        rhs[i * values + j] = s.of_token(OfToken::Beta, i) *
                              (s.value(i, first + j) - s.of_token(OfToken::FromBegin, i) * sum);
      });
  block_product(
      tiles, s.count, columns, s.count,
      [&](std::int64_t i, std::int64_t k) { return inverse[i * s.in.shape.chunk_len + k]; },
      [&](std::int64_t k, std::int64_t j) { return rhs[k * values + j]; },
      [&](std::int64_t i, std::int64_t j, float sum) { updates[i * values + j] = sum; });
}

/// A block for each slot.
inline LaunchShape slot_shape(const GatedDeltaShape& shape) {
  return {
      .grid = dim3(static_cast<unsigned>(shape.chunks()), static_cast<unsigned>(shape.value_heads),
                   static_cast<unsigned>(shape.num_sequences)),
      .block = dim3(kDeltaThreads),
      .shared_bytes = sizeof(DeltaTiles)};
}
/// A block for each tile of columns of a value head's state, which walks the chunks.
inline LaunchShape scan_shape(const GatedDeltaShape& shape) {
  LaunchShape launch_shape = slot_shape(shape);
  launch_shape.grid.x = static_cast<unsigned>(ceil_div(shape.value_size, kDeltaTile));
  return launch_shape;
}

}  // namespace meshplan::kernels::cuda
