#pragma once

namespace meshplan::sim {

/// Generations of fused attention. Their rates differ by published ratios, see device_speeds.cpp.
enum class FlashGeneration {
  One,    // FlashAttention and its Triton versions, 2022
  Two,    // FlashAttention-2, 2023; also behind PyTorch's scaled_dot_product_attention
  Three,  // FlashAttention-3, cuDNN 9: asynchronous on Hopper and later; elsewhere as Two
};

}  // namespace meshplan::sim
