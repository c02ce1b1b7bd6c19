// Models of other kinds than parity_support's dense ones.
#pragma once

#include "runtime/parity/parity_support.hpp"

namespace meshplan::test {

/// Every layer routes each token to 2 of 8 experts, softmax weights that sum to 1.
inline models::ModelSpec mixtral_style() {
  models::ModelSpec model = llama_style();
  model.name = "mixtral-style";
  model.num_layers = 2;
  model.ffn_size = 0;
  model.moe = models::MoeSpec{.num_experts = 8, .top_k = 2, .expert_ffn_size = 32};
  return model;
}

/// The first layer is dense; shared experts beside 3 of 8 routed ones, sigmoid scores, scaled.
inline models::ModelSpec shared_experts_style() {
  models::ModelSpec model = mixtral_style();
  model.name = "shared-experts-style";
  model.ffn_size = 96;
  model.moe->top_k = 3;
  model.moe->shared_expert_ffn_size = 32;
  model.moe->dense_layers = {0};
  model.moe->router.score = models::RouterScore::Sigmoid;
  model.moe->router.scaling_factor = 2.5;
  return model;
}

/// A softmax router with both losses, heavy enough to show in every gradient of the router.
inline models::ModelSpec balanced_style() {
  models::ModelSpec model = mixtral_style();
  model.name = "balanced-style";
  model.moe->router.aux_loss_coefficient = 0.5;
  model.moe->router.z_loss_coefficient = 0.1;
  return model;
}

/// Experts that take three quarters of their share of a sequence; a balanced sigmoid router.
inline models::ModelSpec capacity_style() {
  models::ModelSpec model = shared_experts_style();
  model.name = "capacity-style";
  model.moe->capacity_factor = 0.75;
  model.moe->router.aux_loss_coefficient = 0.5;
  return model;
}

/// Every other layer sees the 8 tokens before it.
inline models::ModelSpec sliding_style() {
  models::ModelSpec model = llama_style();
  model.name = "sliding-style";
  model.layer_pattern = {models::Mixer::Sliding, models::Mixer::Full};
  model.window = 8;
  return model;
}

/// Each softmax has a sink, which a ring must count once.
inline models::ModelSpec sinks_style() {
  models::ModelSpec model = llama_style();
  model.name = "sinks-style";
  model.attention_sinks = true;
  return model;
}

/// gpt-oss: sinks, windows in every other layer, its clamped unit, biases everywhere.
inline models::ModelSpec gpt_oss_style() {
  models::ModelSpec model = mixtral_style();
  model.name = "gpt-oss-style";
  model.activation = models::ActivationKind::ClampedSilu;
  model.qkv_bias = model.attention_out_bias = model.attention_sinks = true;
  model.layer_pattern = {models::Mixer::Sliding, models::Mixer::Full};
  model.window = 8;
  model.moe->expert_bias = true;
  model.moe->router.bias = true;
  model.moe->router.aux_loss_coefficient = 0.5;
  return model;
}

/// Latent attention, a dense layer, a gated shared expert, two
/// of four groups of experts, and a correction bias that moves far enough to change the second
/// step.
inline models::ModelSpec deepseek_style() {
  models::ModelSpec model = latent_style(shared_experts_style());
  model.name = "deepseek-style";
  model.moe->shared_expert_gate = true;
  model.moe->router.correction_bias = true;
  model.moe->router.correction_bias_rate = 0.05;
  model.moe->router.num_groups = 4;
  model.moe->router.top_groups = 2;
  return model;
}

/// Weights from which attention is not nearly even: of that an indexer has little to learn, and its
/// gradient is a difference of nearly equal shares.
inline constexpr double kUnevenStd = 0.1;

/// DeepSeek-V3.2 and GLM-5: an indexer chooses the keys of latent attention.
inline models::ModelSpec sparse_latent_style() {
  models::ModelSpec model = deepseek_style();
  model.name = "sparse-latent-style";
  model.init_std = kUnevenStd;
  model.sparse_attention =
      models::SparseAttentionSpec{.index_heads = 4, .index_head_size = 16, .top_k = 6};
  return model;
}

}  // namespace meshplan::test
