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
/// are scaling_factor * score, with `normalize` over the sum of the K scores. Traffic: 1 T X
/// elements and 4 T X + 8 T K bytes.
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
  const float* correction_bias = nullptr;  // (X), or null
  float* scores = nullptr;                 // (T, X), contiguous
  std::int32_t* choices = nullptr;         // (T, K), contiguous
  float* probabilities = nullptr;          // (T, K), contiguous
};

/// dlogits from the gradients of the probabilities and, where a load-balancing loss has one, of the
/// scores. The choice itself has no gradient.
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
  void* dlogits = nullptr;                // (T, X)
  std::int64_t dlogits_stride = 0;
};

}  // namespace meshplan::kernels
