#include "simd/kernels.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

/// Where a token's operands lie, in elements.
struct Columns {
  explicit Columns(const LatentShape& shape)
      : head(shape.nope_size + shape.rope_size),
        kv_head(shape.nope_size + shape.value_size),
        queries(shape.query_columns()),
        kv(shape.heads * kv_head),
        keys(queries),
        values(queries + shape.heads * head),
        all(values + shape.heads * int64_t{shape.value_size}) {}
  int64_t head;
  int64_t kv_head;
  int64_t queries;  // all of a token
  int64_t kv;
  int64_t keys;    // of qkv: where keys begin
  int64_t values;  // of qkv: where values begin
  int64_t all;     // of qkv
};

template <class T>
void copy(T* to, const T* from, int64_t count) {
  if (count == 0) return;  // no queries
  memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
}

template <class T>
void forward(const LatentHeadsForward& op, Range tokens) {
  const LatentShape& s = op.shape;
  const Columns at(s);
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    T* qkv = static_cast<T*>(op.qkv) + t * at.all;
    const T* kv = static_cast<const T*>(op.kv) + t * at.kv;
    const T* k_rope = static_cast<const T*>(op.k_rope) + t * s.rope_size;
    copy(qkv, static_cast<const T*>(op.q) + t * at.queries, at.queries);
    for (int64_t h = 0; h < s.heads; ++h) {
      T* key = qkv + at.keys + h * at.head;
      copy(key, kv + h * at.kv_head, s.nope_size);
      copy(key + s.nope_size, k_rope, s.rope_size);
      copy(qkv + at.values + h * s.value_size, kv + h * at.kv_head + s.nope_size, s.value_size);
    }
  }
}

template <class T>
void backward(const LatentHeadsBackward& op, Range tokens) {
  const LatentShape& s = op.shape;
  const Columns at(s);
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    const T* dqkv = static_cast<const T*>(op.dqkv) + t * at.all;
    T* dkv = static_cast<T*>(op.dkv) + t * at.kv;
    T* dk_rope = static_cast<T*>(op.dk_rope) + t * s.rope_size;
    copy(static_cast<T*>(op.dq) + t * at.queries, dqkv, at.queries);
    for (int64_t h = 0; h < s.heads; ++h) {
      copy(dkv + h * at.kv_head, dqkv + at.keys + h * at.head, s.nope_size);
      copy(dkv + h * at.kv_head + s.nope_size, dqkv + at.values + h * s.value_size, s.value_size);
    }
    for_each_vec(0, s.rope_size, [&](int64_t i, auto part) {
      Vec sum{};
      for (int64_t h = 0; h < s.heads; ++h)
        sum += load(dqkv + at.keys + h * at.head + s.nope_size + i, part);
      store(dk_rope + i, sum, part);
    });
  }
}

}  // namespace

void latent_heads_forward(const LatentHeadsForward& op, Range tokens) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { forward<T>(op, tokens); });
}
void latent_heads_backward(const LatentHeadsBackward& op, Range tokens) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { backward<T>(op, tokens); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
