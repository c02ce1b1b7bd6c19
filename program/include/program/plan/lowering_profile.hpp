// How a plan is lowered, beyond what it says itself.
#pragma once

#include <optional>

#include "program/plan/frozen.hpp"

namespace meshplan::program {

/// What a software stack fuses, overlaps and keeps. The runtime runs `meshplan_profile()`.
struct LoweringProfile {
  bool regather_sequence = true;   // SP: keep the shard, all-gather again in backward (Megatron-LM)
  bool bucketed_gradients = true;  // reduce a bucket as soon as its last gradient is there
  bool vocab_parallel_loss = true;  // false: gather the logits, and compute the loss on every rank
                                    // (torchtitan with loss parallel disabled)
  bool fused_activations = true;    // a tanh GELU is part of the product before it
  bool fused_residuals = true;      // a sum is part of the product before it or the norm after it
  bool fused_rotations = true;      // of heads that were normed: part of that norm
  bool kept_quantized_weights = true;  // FP8: once a step, unless keeps_quantized_weights() says no
  bool kept_largest = true;  // FP8: norms and activations keep the largest number that they write
  bool filled_exchanges = true;  // of experts: what does not wait for one runs beside it
  std::optional<FrozenPart> frozen_part = std::nullopt;  // instead of Plan::frozen
};
LoweringProfile meshplan_profile();

enum class Pass { Training, ForwardOnly };

}  // namespace meshplan::program
