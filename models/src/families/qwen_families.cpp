// Qwen 2 to 3.5, with their experts, linear layers and the text models of Qwen-VL.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/index.hpp"
#include "core/limits.hpp"
#include "families/families.hpp"
#include "hf/family_parts.hpp"

namespace meshplan::models {
namespace {

/// Published files keep a window that is switched off.
void ignore_window(const HfConfig& config) {
  for (const char* key : {"sliding_window", "max_window_layers"})
    config.ignore(key, "use_sliding_window is false");
}

/// Qwen 2 and 3: `sliding_window` counts only where use_sliding_window says so, and then from
/// layer max_window_layers on.
void fill_qwen_dense(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  Mixers layers = uniform(spec, Mixer::Full);
  const bool sliding = config.flag({"use_sliding_window"});
  if (!sliding) ignore_window(config);
  if (sliding) {
    const int first = std::min(config.integer({"max_window_layers"}), spec.num_layers);
    std::fill(layers.begin() + first, layers.end(), Mixer::Sliding);
  }
  require_absent_or(config, "use_mrope", false, "positions have one dimension");
  fill_layer_types(config, spec, std::move(layers));
}

void fill_qwen2(HfConfig& config, ModelSpec& spec) {
  fill_qwen_dense(config, spec);
  spec.qkv_bias = true;
  config.assume("qkv bias = true, output bias = false (every qwen2; it has no key)");
}

/// Positions of images have three parts, which share a head's frequencies: text has all alike.
void fill_qwen2_vl(HfConfig& config, ModelSpec& spec) {
  config.ignore("use_mrope", "text has the same position in every part");
  fill_qwen2(config, spec);
}

void fill_qwen3(HfConfig& config, ModelSpec& spec) {
  fill_qwen_dense(config, spec);
  spec.qk_norm = true;
  set_attention_bias(config, spec);
}

/// Experts of the Qwen MoE types: dense where mlp_only_layers or decoder_sparse_step say so.
void fill_qwen_moe(HfConfig& config, ModelSpec& spec) {
  MoeSpec moe;
  moe.num_experts = config.positive({"num_experts", "num_local_experts"});
  moe.top_k = config.positive({"num_experts_per_tok"});
  moe.expert_ffn_size = config.positive({"moe_intermediate_size"});
  moe.router.normalize_top_k = config.flag({"norm_topk_prob"});
  moe.router.aux_loss_coefficient = balance_loss(config, spec);
  require_no_jitter(config);
  const int step = config.positive({"decoder_sparse_step"});
  const std::vector<int> dense = config.integers({"mlp_only_layers"});
  for (int i = 0; i < spec.num_layers; ++i)
    if ((i + 1) % step != 0 || std::ranges::find(dense, i) != dense.end())
      moe.dense_layers.push_back(i);
  if (!moe.dense_layers.empty())
    spec.ffn_size = config.positive({"intermediate_size"});
  else
    config.ignore("intermediate_size", "no layer has a dense FFN");
  spec.moe = std::move(moe);
}

void fill_qwen3_moe(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.activation = config.activation({"hidden_act"});
  spec.qk_norm = true;
  set_attention_bias(config, spec);
  const bool sliding = config.flag({"use_sliding_window"});
  if (!sliding) ignore_window(config);
  config.ignore("max_window_layers", "transformers does not read it for this model type");
  fill_layer_types(config, spec, uniform(spec, sliding ? Mixer::Sliding : Mixer::Full));
  fill_qwen_moe(config, spec);
}

/// Experts, a shared one behind a gate, and biases of queries, keys and values.
void fill_qwen2_moe(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.activation = config.activation({"hidden_act"});
  spec.qkv_bias = config.flag({"qkv_bias"});
  const bool sliding = config.flag({"use_sliding_window"});
  if (!sliding) ignore_window(config);
  fill_layer_types(config, spec, uniform(spec, sliding ? Mixer::Sliding : Mixer::Full));
  fill_qwen_moe(config, spec);
  spec.moe->shared_expert_ffn_size = config.integer({"shared_expert_intermediate_size"});
  spec.moe->shared_expert_gate = spec.moe->shared_expert_ffn_size > 0;
}

void fill_gated_delta(HfConfig& config, ModelSpec& spec) {
  LinearAttentionSpec linear;
  linear.num_key_heads = config.integer({"linear_num_key_heads"});
  linear.num_value_heads = config.integer({"linear_num_value_heads"});
  linear.key_head_size = config.integer({"linear_key_head_dim"});
  linear.value_head_size = config.integer({"linear_value_head_dim"});
  linear.conv_size = config.integer({"linear_conv_kernel_dim"});
  spec.linear_attention = linear;
}

void fill_hybrid_layers(HfConfig& config, ModelSpec& spec) {
  const bool listed = config.has("layer_types");
  if (listed) config.ignore("full_attention_interval", "said by layer_types");
  fill_layer_types(
      config, spec,
      listed ? Mixers{}
             : full_every(spec, config.positive({"full_attention_interval"}), Mixer::Linear));
}

void fill_qwen3_next(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.activation = config.activation({"hidden_act"});
  spec.qk_norm = true;
  spec.attention_output_gate = true;
  set_attention_bias(config, spec);
  fill_hybrid_layers(config, spec);
  fill_gated_delta(config, spec);
  fill_qwen_moe(config, spec);
  spec.moe->shared_expert_ffn_size = config.integer({"shared_expert_intermediate_size"});
  spec.moe->shared_expert_gate = spec.moe->shared_expert_ffn_size > 0;
  spec.mtp_layers = config.integer({"num_nextn_predict_layers", "mtp_num_hidden_layers"});
}

/// Qwen 3.5: every layer alike but for its mixer.
void fill_qwen3_5_layers(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.activation = config.activation({"hidden_act"});
  spec.qk_norm = spec.attention_output_gate = true;
  config.ignore("attn_output_gate", "every qwen3_5 has it");
  config.ignore("mlp_only_layers", "transformers does not read it for this model type");
  set_attention_bias(config, spec);
  fill_hybrid_layers(config, spec);
  fill_gated_delta(config, spec);
  spec.mtp_layers = config.integer({"mtp_num_hidden_layers"});
  predict_only_if(config, spec, "mtp_use_dedicated_embeddings", false,
                  "prediction modules with embeddings of their own");
}

void fill_qwen3_5(HfConfig& config, ModelSpec& spec) {
  fill_qwen3_5_layers(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
}

void fill_qwen3_5_moe(HfConfig& config, ModelSpec& spec) {
  fill_qwen3_5_layers(config, spec);
  MoeSpec moe;
  moe.num_experts = config.positive({"num_experts", "num_local_experts"});
  moe.top_k = config.positive({"num_experts_per_tok"});
  moe.expert_ffn_size = config.positive({"moe_intermediate_size"});
  moe.shared_expert_ffn_size = config.integer({"shared_expert_intermediate_size"});
  moe.shared_expert_gate = moe.shared_expert_ffn_size > 0;
  moe.router.aux_loss_coefficient = balance_loss(config, spec);
  config.ignore("intermediate_size", "no layer has a dense FFN");
  spec.moe = std::move(moe);
}

}  // namespace

std::vector<HfFamily> qwen_families() {
  return {{"qwen2", fill_qwen2},           {"qwen2_5_vl_text", fill_qwen2_vl},
          {"qwen2_moe", fill_qwen2_moe},   {"qwen2_vl_text", fill_qwen2_vl},
          {"qwen3", fill_qwen3},           {"qwen3_5_moe_text", fill_qwen3_5_moe},
          {"qwen3_5_text", fill_qwen3_5},  {"qwen3_moe", fill_qwen3_moe},
          {"qwen3_next", fill_qwen3_next}, {"qwen3_vl_moe_text", fill_qwen3_moe},
          {"qwen3_vl_text", fill_qwen3}};
}

}  // namespace meshplan::models
