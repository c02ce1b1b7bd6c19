// How a mixture-of-experts layer chooses experts for each token.
//
// T tokens, X experts, K = top_k choices a token.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// What a logit becomes before the choice: softmax over the experts (Shazeer et al. 2017), or a
/// sigmoid for each (DeepSeek-V3, section 2.1.2).
enum class RouterScore { Softmax, Sigmoid };

/// scores = score(logits) in fp32. The choices of a token are the K experts of largest
/// score + correction bias, in descending order, ties to the smaller expert; their probabilities
/// are scaling_factor * score, with `normalize` over the sum of the K scores. With groups, experts
/// lie in equal groups, and only those of the `top_groups` groups are eligible whose
/// `group_experts` best (score + correction bias) have the largest sum, ties to the smaller group.
/// Traffic: 1 T X elements and 4 T X + 8 T K bytes.
struct RouterForward {
  std::int64_t tokens = 0;
  int experts = 0;  // X
  int top_k = 0;    // K <= X
  RouterScore score = RouterScore::Softmax;
  bool normalize = true;
  float scaling_factor = 1.0F;
  DType dtype = DType::F32;
  const void* logits = nullptr;  // (T, X)
  std::int64_t logits_stride = 0;
  int num_groups = 1;  // divides X
  int top_groups = 1;
  int group_experts = 1;  // 1 or 2
  DType bias_dtype = DType::F32;
  const void* correction_bias = nullptr;  // (X), or null
  float* scores = nullptr;                // (T, X), contiguous
  std::int32_t* choices = nullptr;        // (T, K), contiguous
  float* probabilities = nullptr;         // (T, K), contiguous
  float* lse = nullptr;                   // (T): log sum exp of the logits, or null
};

/// Which tokens of a rank belong to which sequence, and how many of each chose each expert: token t
/// here is number (first_token + t) of its sequences, seq_len tokens each. Where P ranks hold parts
/// of the same sequences, rank p's own counts are part p, in the order of their tokens.
/// Where cp > 1 ranks share each sequence, such a "sequence" is one of the two chunks of it that a
/// rank holds, 2 b and 2 b + 1 of sequence b: part p is of cp rank r = p / (P / cp), whose chunks
/// are number r and 2 cp - 1 - r of the sequence.
struct SequenceCounts {
  std::int64_t first_token = 0;
  std::int64_t seq_len = 0;
  std::int64_t sequences = 0;   // B
  int parts = 1;                // P, a multiple of cp
  const float* load = nullptr;  // (P, B, X)
  int cp = 1;
};

/// Where the tokens of part `part` and sequence (or chunk) `sequence` come among those of the whole
/// sequence, in units that no two of its parts share.
constexpr int place_of_part(const SequenceCounts& counts, int part, std::int64_t sequence) {
  const int ranks = counts.parts / counts.cp;  // that share a chunk's tokens
  const int rank = part / ranks;
  const bool second = counts.cp > 1 && sequence % 2 == 1;
  return (second ? 2 * counts.cp - 1 - rank : rank) * ranks + part % ranks;
}

/// load[b, x] = choices of expert x by the tokens of sequence b that are here, overwritten; or,
/// without sequences, total[x] += all of them. Exact up to 2^24.
struct ExpertLoad {
  std::int64_t tokens = 0;
  int experts = 0;
  int top_k = 0;
  const std::int32_t* choices = nullptr;  // (T, K); negative ones are not counted
  std::int64_t first_token = 0;
  std::int64_t seq_len = 0;
  std::int64_t sequences = 0;  // B
  float* load = nullptr;       // (B, X), or null
  float* total = nullptr;      // (X), or null
};

/// The step's router losses, in units of a token's loss: for each token t of sequence b
///   balance += balance_weight * sum over x of load[b, x] p[t, x], p = scores over their row's sum;
///   z       += z_weight * lse[t]^2.
/// With balance_weight = a X / (K S) its mean over the tokens is a sum_x f_x P_x, f_x = X / (K S)
/// times the sequence's tokens of expert x and P_x the mean of p over the sequence.
/// Source: DeepSeek-V3, equations 17 to 20; Zoph et al. 2022 (ST-MoE), equation 5.
struct RouterLosses {
  std::int64_t tokens = 0;
  int experts = 0;
  float balance_weight = 0.0F;  // 0: no such loss, and no counts
  float z_weight = 0.0F;        // 0: no such loss, and no lse
  SequenceCounts counts;
  const float* scores = nullptr;  // (T, X)
  const float* lse = nullptr;     // (T)
  double* balance = nullptr;      // added to
  double* z = nullptr;            // added to
};

/// bias[x] += rate * sign(mean - load[x]), mean = the sum of the loads over X: experts with less
/// than their share become likelier. Source: Wang et al. 2024, algorithm 1.
struct BalanceExperts {
  int experts = 0;
  float rate = 0.0F;
  const float* load = nullptr;            // (X): choices of the whole batch
  const float* gradient_scale = nullptr;  // where it is NaN, nothing moves; null: always
  float* bias = nullptr;                  // (X)
  DType copy_dtype = DType::F32;
  void* copy = nullptr;  // (X): the bias in another type, or null
};

/// kept[t, k] = choices[t, k], or -1 where `capacity` tokens of the sequence that come before t
/// chose the same expert. The last `uncounted_tokens`, which the counts do not hold, keep none.
struct LimitChoices {
  std::int64_t tokens = 0;
  int experts = 0;
  int top_k = 0;
  std::int64_t capacity = 0;
  SequenceCounts counts;
  int part = 0;  // of the counts: this rank's
  std::int64_t uncounted_tokens = 0;
  const std::int32_t* choices = nullptr;  // (T, K)
  std::int32_t* kept = nullptr;           // (T, K)
};

/// dlogits from the gradients of the probabilities, of the scores where they have one, and of the
/// router losses, whose gradient is loss_scale times that of RouterLosses (counts are constants)
/// and 0 for the last `uncounted_tokens`. The choice itself has no gradient. The z-loss needs
/// softmax scores.
struct RouterBackward {
  std::int64_t tokens = 0;
  int experts = 0;
  int top_k = 0;
  RouterScore score = RouterScore::Softmax;
  bool normalize = true;
  float scaling_factor = 1.0F;
  DType dtype = DType::F32;
  const float* scores = nullptr;          // (T, X)
  const std::int32_t* choices = nullptr;  // (T, K)
  const float* dprobabilities = nullptr;  // (T, K)
  const float* dscores = nullptr;         // (T, X), or null
  float balance_weight = 0.0F;            // as in RouterLosses
  float z_weight = 0.0F;
  SequenceCounts counts;
  const float* lse = nullptr;         // (T)
  const float* loss_scale = nullptr;  // one number, read when it runs; null without such losses
  std::int64_t uncounted_tokens = 0;
  void* dlogits = nullptr;  // (T, X)
  std::int64_t dlogits_stride = 0;
};

}  // namespace meshplan::kernels
