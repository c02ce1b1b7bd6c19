// Cross entropy over a vocabulary that is sharded over the tensor-parallel group, in two steps with
// one all-gather of 12 bytes a token and shard between them. With one shard: run the steps back to
// back.
//
// T tokens, V columns held here (global ids vocab_begin + column), of which the first `valid` are
// words and the rest padding, N shards. A target of -1 is ignored. With a soft cap (Gemma 2) every
// logit x stands for softcap tanh(x / softcap); 0 = none.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

constexpr std::int32_t kIgnoredTarget = -1;
constexpr std::int64_t kCrossEntropyStats = 3;  // per token and shard

/// stats[t] = {max over valid columns, sum of exp(logit - max), logit of the target or 0 if another
/// shard holds it}; {-infinity, 0, 0} where the shard has no valid column. Reads T V elements once
/// (twice where a row exceeds the cache).
struct CrossEntropyLocal {
  std::int64_t tokens = 0;
  std::int64_t columns = 0;  // V
  std::int64_t valid = 0;
  std::int64_t vocab_begin = 0;
  DType dtype = DType::F32;
  const void* logits = nullptr;  // (T, V)
  std::int64_t logits_stride = 0;
  const std::int32_t* targets = nullptr;  // (T), global ids
  float softcap = 0.0F;
  float* stats = nullptr;  // (T, 3)
};

/// From the stats of all shards, in rank order: lse[t] = log sum exp over the whole vocabulary,
/// loss[t] = lse[t] - target logit, 0 for ignored targets.
struct CrossEntropyCombine {
  std::int64_t tokens = 0;
  std::int64_t num_shards = 1;            // N
  const float* stats = nullptr;           // (N, T, 3)
  const std::int32_t* targets = nullptr;  // (T)
  float* loss = nullptr;                  // (T)
  float* lse = nullptr;                   // (T)
};

/// dlogits = (exp(logit - lse) - [column is the target]) * scale * weight, with a soft cap times
/// its slope 1 - (capped / softcap)^2; 0 in padded columns and in rows whose target is ignored.
/// `scale` is read when the operation runs: usually 1 / (valid tokens of the global batch).
/// Traffic: 2 T V elements.
struct CrossEntropyBackward {
  std::int64_t tokens = 0;
  std::int64_t columns = 0;
  std::int64_t valid = 0;
  std::int64_t vocab_begin = 0;
  DType dtype = DType::F32;
  const void* logits = nullptr;           // (T, V)
  void* dlogits = nullptr;                // (T, V); usually the same memory as logits
  std::int64_t logits_stride = 0;         // of both
  const std::int32_t* targets = nullptr;  // (T)
  const float* lse = nullptr;             // (T)
  float softcap = 0.0F;
  const float* scale = nullptr;  // one number
  float weight = 1.0F;           // of this loss among others
};

/// sum (+)= weight * loss[0] + weight * loss[1] + ..., in fp64 and in an order that depends on
/// `tokens` alone (on the CPU: this one).
struct SumLoss {
  std::int64_t tokens = 0;
  const float* loss = nullptr;  // (T)
  double* sum = nullptr;        // one number
  bool accumulate = false;
  double weight = 1.0;
};

}  // namespace meshplan::kernels
