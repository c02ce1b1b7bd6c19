// A chunk of the gated delta rule: what its forward and backward share.
#pragma once

#include "mixers/gated_delta_layout.hpp"
#include "simd/packed_rows.hpp"
#include "simd/small_gemm.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

/// The tokens [first, first + count) of one sequence, for one key head.
template <class Op>
struct DeltaChunk {
  const Op& op;
  const GatedDeltaLayout& layout;
  float* scratch;
  int64_t sequence;
  int64_t key_head;
  int64_t index;  // in the sequence
  int64_t count;

  DeltaChunk(const Op& operation, const GatedDeltaLayout& offsets, float* memory, int64_t pair,
             int64_t chunk)
      : op(operation),
        layout(offsets),
        scratch(memory),
        sequence(pair / op.shape.key_heads),
        key_head(pair % op.shape.key_heads),
        index(chunk),
        count(least(op.shape.chunk_len, op.shape.seq_len - chunk * op.shape.chunk_len)) {
    find_documents();
  }

  float* at(int64_t offset) const { return scratch + offset; }
  int64_t row() const { return sequence * op.shape.seq_len + index * op.shape.chunk_len; }
  int64_t value_head(int64_t member) const { return key_head * layout.group + member; }
  /// Of a state in (B, Hv, N, Ek, Ev), or in (B, Hv, Ek, Ev) where there is one per sequence.
  int64_t state_offset(int64_t member, bool one_per_sequence) const {
    const GatedDeltaShape& s = op.shape;
    const int64_t head = sequence * s.value_heads + value_head(member);
    const int64_t state = one_per_sequence ? head : head * s.chunks() + index;
    return state * s.key_size * s.value_size;
  }
  int64_t key_column() const { return (op.shape.key_heads + key_head) * op.shape.key_size; }
  int64_t value_column(int64_t member) const {
    return 2 * op.shape.key_heads * op.shape.key_size + value_head(member) * op.shape.value_size;
  }
  /// Whether the state at the chunk's begin reaches its end.
  bool passes_state() const { return from_before == count; }

  int64_t from_before = 0;             // rows of the document that began before the chunk
  int64_t begin[kMaxDeltaChunk] = {};  // of each row's document in the chunk

 private:
  void find_documents() {
    from_before = count;
    if (op.positions == nullptr) return;
    int64_t last = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (op.positions[row() + i] == 0) {
        from_before = least(from_before, i);
        last = i;
      }
      begin[i] = last;
    }
  }
};

/// to (count, size) = x scale / sqrt(sum x^2 + epsilon) for each row, zeros beyond; `norms` keeps
/// the factors without `scale`.
template <class T>
void pack_normalized(float* to, int64_t padded, float* norms, const T* from, int64_t stride,
                     int64_t size, int64_t count, int64_t all_rows, float scale) {
  pack_rows(to, padded, from, stride, size, count, all_rows);
  for (int64_t i = 0; i < count; ++i) {
    float* x = to + i * padded;
    Vec squares{};
    for (int64_t e = 0; e < padded; e += kLanes) squares += load(x + e) * load(x + e);
    norms[i] = 1.0F / __builtin_sqrtf(sum(squares) + kDeltaNormEpsilon);
    for (int64_t e = 0; e < padded; e += kLanes) store(x + e, load(x + e) * (norms[i] * scale));
  }
}

/// c (n, n) = a b on and below the diagonal, in blocks of rows; b (depth, rows).
inline void lower_product(float* c, int64_t rows, const float* a, int64_t a_stride, const float* b,
                          int64_t depth, int64_t n) {
  for (int64_t i = 0; i < n; i += kDeltaBlock)
    small_gemm({.c = c + i * rows,
                .c_stride = rows,
                .a = a + i * a_stride,
                .a_row_stride = a_stride,
                .a_column_stride = 1,
                .b = b,
                .b_stride = rows,
                .m = least(kDeltaBlock, n - i),
                .n = i + kDeltaBlock,
                .k = depth,
                .accumulate = false});
}

/// c (n, width) += a b with a lower triangular a (n, n), zero above the diagonal.
inline void add_lower_times(float* c, const float* a, int64_t rows, const float* b, int64_t width,
                            int64_t n) {
  for (int64_t i = 0; i < n; i += kDeltaBlock)
    small_gemm({.c = c + i * width,
                .c_stride = width,
                .a = a + i * rows,
                .a_row_stride = rows,
                .a_column_stride = 1,
                .b = b,
                .b_stride = width,
                .m = least(kDeltaBlock, n - i),
                .n = width,
                .k = least(i + kDeltaBlock, n),
                .accumulate = true});
}

/// c (n, width) += a^T b for such an a.
inline void add_lower_transposed_times(float* c, const float* a, int64_t rows, const float* b,
                                       int64_t width, int64_t n) {
  for (int64_t i = 0; i < n; i += kDeltaBlock)
    small_gemm({.c = c + i * width,
                .c_stride = width,
                .a = a + i * rows + i,
                .a_row_stride = 1,
                .a_column_stride = rows,
                .b = b + i * width,
                .b_stride = width,
                .m = least(kDeltaBlock, n - i),
                .n = width,
                .k = n - i,
                .accumulate = true});
}

/// c (m, n) (+)= a b with plain rows of a.
inline void multiply(float* c, int64_t c_stride, const float* a, int64_t a_stride, const float* b,
                     int64_t b_stride, int64_t m, int64_t n, int64_t k, bool accumulate) {
  small_gemm({c, c_stride, a, a_stride, 1, b, b_stride, m, n, k, accumulate});
}
/// c (m, n) += a^T b; a (k, m).
inline void add_transposed_times(float* c, int64_t c_stride, const float* a, int64_t a_stride,
                                 const float* b, int64_t b_stride, int64_t m, int64_t n,
                                 int64_t k) {
  small_gemm({c, c_stride, a, 1, a_stride, b, b_stride, m, n, k, true});
}

/// row += other factor
MESHPLAN_INLINE void add_row(float* row, const float* other, float factor, int64_t width) {
  for (int64_t e = 0; e < width; e += kLanes)
    store(row + e, load(row + e) + load(other + e) * factor);
}
MESHPLAN_INLINE void scale_row(float* row, float factor, int64_t width) {
  for (int64_t e = 0; e < width; e += kLanes) store(row + e, load(row + e) * factor);
}
MESHPLAN_INLINE float dot(const float* a, const float* b, int64_t width) {
  Vec products{};
  for (int64_t e = 0; e < width; e += kLanes) products += load(a + e) * load(b + e);
  return sum(products);
}

/// Solves (I + L) x = b in place, x (n, width), given -L: forward substitution, of whole blocks as
/// products.
inline void solve_lower(float* x, const float* solver, int64_t rows, int64_t width, int64_t n) {
  for (int64_t first = 0; first < n; first += kDeltaBlock) {
    const int64_t end = least(first + kDeltaBlock, n);
    if (first > 0)
      multiply(x + first * width, width, solver + first * rows, rows, x, width, end - first, width,
               first, true);
    for (int64_t i = first + 1; i < end; ++i)
      for (int64_t j = first; j < i; ++j)
        add_row(x + i * width, x + j * width, solver[i * rows + j], width);
  }
}

/// Solves (I + L)^T x = b in place, likewise backwards.
inline void solve_lower_transposed(float* x, const float* solver, int64_t rows, int64_t width,
                                   int64_t n) {
  for (int64_t first = (n - 1) / kDeltaBlock * kDeltaBlock; first >= 0; first -= kDeltaBlock) {
    const int64_t end = least(first + kDeltaBlock, n);
    if (end < n)
      add_transposed_times(x + first * width, width, solver + end * rows + first, rows,
                           x + end * width, width, end - first, width, n - end);
    for (int64_t i = end - 2; i >= first; --i)
      for (int64_t j = i + 1; j < end; ++j)
        add_row(x + i * width, x + j * width, solver[j * rows + i], width);
  }
}

/// Queries and keys of a chunk, and their products.
template <class T, class Op>
void pack_keys(const DeltaChunk<Op>& chunk) {
  const GatedDeltaLayout& layout = chunk.layout;
  const GatedDeltaShape& shape = chunk.op.shape;
  const T* rows = static_cast<const T*>(chunk.op.qkv) + chunk.row() * chunk.op.qkv_stride;
  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(shape.key_size));
  pack_normalized(chunk.at(layout.query), layout.key, chunk.at(layout.query_norms),
                  rows + chunk.key_head * shape.key_size, chunk.op.qkv_stride, shape.key_size,
                  chunk.count, layout.rows, scale);
  pack_normalized(chunk.at(layout.keys), layout.key, chunk.at(layout.key_norms),
                  rows + chunk.key_column(), chunk.op.qkv_stride, shape.key_size, chunk.count,
                  layout.rows, 1.0F);
  float* transposed = chunk.at(layout.keys_transposed);
  transpose(transposed, layout.rows, chunk.at(layout.keys), layout.key, layout.rows, layout.key);
  lower_product(chunk.at(layout.query_keys), layout.rows, chunk.at(layout.query), layout.key,
                transposed, shape.key_size, chunk.count);
  lower_product(chunk.at(layout.key_keys), layout.rows, chunk.at(layout.keys), layout.key,
                transposed, shape.key_size, chunk.count);
}

/// Number of value head `head` in an array of dt_bias' and a_log's type.
inline float decay_weight(const void* weights, DType dtype, int64_t head) {
  if (dtype == DType::BF16) return load(static_cast<const Bf16*>(weights) + head, Tail{1})[0];
  if (dtype == DType::F16) return load(static_cast<const F16*>(weights) + head, Tail{1})[0];
  return static_cast<const float*>(weights)[head];
}

MESHPLAN_INLINE float scalar_exp(float x) {
  return exp(splat(x))[0];
}

/// What a token's b and a stand for.
struct DeltaGate {
  float beta;   // sigmoid(b)
  float decay;  // g = -exp(a_log) softplus(a + dt_bias), the logarithm
  float slope;  // of the decay by a
};

MESHPLAN_INLINE DeltaGate delta_gate(float b, float a, float dt_bias, float rate) {
  const float x = a + dt_bias;
  const float e = scalar_exp(x < 0.0F ? x : -x);
  const float softplus = (x > 0.0F ? x : 0.0F) + __builtin_log1pf(e);
  const float sigmoid = (x < 0.0F ? e : 1.0F) / (1.0F + e);
  return {1.0F / (1.0F + scalar_exp(-b)), -rate * softplus, -rate * sigmoid};
}

/// Gates of a value head, and the decays from the chunk's begin and to its end.
template <class T, class Op>
void compute_gates(const DeltaChunk<Op>& chunk, int64_t member) {
  const GatedDeltaLayout& layout = chunk.layout;
  const int64_t head = chunk.value_head(member);
  const float dt_bias = decay_weight(chunk.op.dt_bias, chunk.op.decay_dtype, head);
  const float rate = scalar_exp(decay_weight(chunk.op.a_log, chunk.op.decay_dtype, head));
  float* high = chunk.at(layout.decay_high);
  float* low = chunk.at(layout.decay_low);
  double all = 0.0;  // fp32 would round differences of far decays
  for (int64_t i = 0; i < chunk.count; ++i) {
    const T* ba = static_cast<const T*>(chunk.op.ba) + (chunk.row() + i) * chunk.op.ba_stride;
    const float b = load(ba + head, Tail{1})[0];
    const float a = load(ba + chunk.op.shape.value_heads + head, Tail{1})[0];
    const DeltaGate gate = delta_gate(b, a, dt_bias, rate);
    chunk.at(layout.beta)[i] = gate.beta;
    chunk.at(layout.decay)[i] = gate.decay;
    all += double{gate.decay};
    high[i] = static_cast<float>(all);
    low[i] = static_cast<float>(all - double{high[i]});
  }
  const int64_t last = chunk.count - 1;
  for (int64_t i = 0; i < chunk.count; ++i) {
    const float left = (high[last] - high[i]) + (low[last] - low[i]);
    chunk.at(layout.from_begin)[i] = i < chunk.from_before ? scalar_exp(high[i]) : 0.0F;
    chunk.at(layout.to_end)[i] = i >= chunk.begin[last] ? scalar_exp(left) : 0.0F;
  }
}

/// Decay of the state over the whole chunk.
template <class Op>
float state_decay(const DeltaChunk<Op>& chunk) {
  return chunk.passes_state() ? chunk.at(chunk.layout.from_begin)[chunk.count - 1] : 0.0F;
}

/// Decays from each token of the chunk to each later one, in whole blocks of rows: scores = decays
/// q k^T, solver = -beta decays k k^T without the diagonal. `decays` may be null.
template <class Op>
void compute_scores(const DeltaChunk<Op>& chunk, float* decays) {
  const GatedDeltaLayout& layout = chunk.layout;
  const float* high = chunk.at(layout.decay_high);
  const float* low = chunk.at(layout.decay_low);
  for (int64_t i = 0; i < chunk.count; ++i) {
    const int64_t first = i * layout.rows;
    const int64_t columns = round_up(i + 1, kDeltaBlock);
    const float beta = chunk.at(layout.beta)[i];
    const Vec begin = splat(static_cast<float>(chunk.begin[i]));
    const Vec end = splat(static_cast<float>(i));
    for (int64_t j = 0; j < columns; j += kLanes) {
      const Vec column = __builtin_convertvector(iota() + static_cast<int32_t>(j), Vec);
      const Vec decay = exp((high[i] - load(high + j)) + (low[i] - load(low + j)));
      const Vec seen = column >= begin ? (column <= end ? decay : Vec{}) : Vec{};
      if (decays != nullptr) store(decays + first + j, seen);
      store(chunk.at(layout.scores) + first + j,
            seen * load(chunk.at(layout.query_keys) + first + j));
      const Vec lower = load(chunk.at(layout.key_keys) + first + j) * seen * -beta;
      store(chunk.at(layout.solver) + first + j, column < end ? lower : Vec{});
    }
  }
}

/// Updates u of a value head from its state: beta (v - decay S^T k), solved.
template <class T, class Op>
void compute_updates(const DeltaChunk<Op>& chunk, int64_t member, const float* state) {
  const GatedDeltaLayout& layout = chunk.layout;
  float* updates = chunk.at(layout.updates);
  multiply(updates, layout.value, chunk.at(layout.keys), layout.key, state, layout.value,
           chunk.count, layout.value, chunk.op.shape.key_size, false);
  for (int64_t i = 0; i < chunk.count; ++i) {
    const T* v = static_cast<const T*>(chunk.op.qkv) + (chunk.row() + i) * chunk.op.qkv_stride +
                 chunk.value_column(member);
    float* row = updates + i * layout.value;
    const float beta = chunk.at(layout.beta)[i];
    const float decay = chunk.at(layout.from_begin)[i];
    for_each_vec(0, chunk.op.shape.value_size, [&](int64_t e, auto part) {
      store(row + e, (load(v + e, part) - load(row + e, part) * decay) * beta, part);
    });
  }
  solve_lower(updates, chunk.at(layout.solver), layout.rows, layout.value, chunk.count);
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
