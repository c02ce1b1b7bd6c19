// Queries, keys and values of multi-head latent attention side by side, as attention reads them.
// Source: DeepSeek-V2, section 2.1: a key is a head's own part and a rotated part that all share.
//
// T tokens, H heads, En elements of a head without rotation, Er rotated ones, E = En + Er, Ev
// elements of a value head.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

struct LatentShape {
  std::int64_t tokens = 0;
  int heads = 0;
  int nope_size = 0;    // En
  int rope_size = 0;    // Er
  int value_size = 0;   // Ev
  bool queries = true;  // false: keys and values alone, where the queries are of fewer tokens
  std::int64_t query_columns() const { return queries ? key_columns() : 0; }
  std::int64_t key_columns() const { return std::int64_t{heads} * (nope_size + rope_size); }
  std::int64_t kv_columns() const { return std::int64_t{heads} * (nope_size + value_size); }
  std::int64_t columns() const {
    return query_columns() + key_columns() + std::int64_t{heads} * value_size;
  }
};

/// qkv[t] = [q | for each head: k, its own part, then the shared one | for each head: v]. All
/// operands are contiguous. Without queries, the same without q. Traffic: 4 T H E + 2 T H Ev
/// elements, without queries half of the former.
struct LatentHeadsForward {
  LatentShape shape;
  DType dtype = DType::F32;
  const void* q = nullptr;       // (T, H E)
  const void* kv = nullptr;      // (T, H (En + Ev)): of each head k, then v
  const void* k_rope = nullptr;  // (T, Er)
  void* qkv = nullptr;           // (T, H (2 E + Ev))
};

/// The gradients of q and kv, copied, and of k_rope: the sum over the heads, ascending, in fp32.
struct LatentHeadsBackward {
  LatentShape shape;
  DType dtype = DType::F32;
  const void* dqkv = nullptr;
  void* dq = nullptr;
  void* dkv = nullptr;
  void* dk_rope = nullptr;
};

}  // namespace meshplan::kernels
