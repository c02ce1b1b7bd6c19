// Decoders of GPT's kind: layer norms and a plain MLP, or halves side by side.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/index.hpp"
#include "core/limits.hpp"
#include "families/families.hpp"
#include "hf/family_parts.hpp"
#include "hf/sizes.hpp"

namespace meshplan::models {
namespace {

void fill_gpt2(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  const auto inner = config.optional_integer({"n_inner"});
  spec.ffn_size = inner.value_or(4 * spec.hidden_size);
  if (!inner) config.assume(fmt::format("n_inner = {} (4 * n_embd)", spec.ffn_size));
  if (!config.flag({"scale_attn_weights"})) spec.attention_scale = 1.0;
  require_absent_or(config, "scale_attn_by_inverse_layer_idx", false,
                    "every layer would divide its scores by its own number");
  require_absent_or(config, "add_cross_attention", false, "there is no encoder to attend to");
  fill_dropout(config, spec, {"attn_pdrop", "embd_pdrop", "resid_pdrop"});
  spec.norm = Norm::LayerNorm;
  spec.norm_epsilon = config.number({"layer_norm_epsilon"});
  spec.mlp = Mlp::Plain;
  spec.activation = config.activation({"activation_function"});
  spec.positions = Positions::Learned;
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = true;
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
}

/// One key and value head for all queries.
void fill_gpt_bigcode(HfConfig& config, ModelSpec& spec) {
  fill_gpt2(config, spec);
  if (config.flag({"multi_query"})) spec.num_kv_heads = 1;
}

void fill_gpt_neox(HfConfig& config, ModelSpec& spec) {
  fill_gpt_like(config, spec, {"layer_norm_eps"});
  fill_rope(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
  spec.mlp_bias = true;
  if (config.flag({"use_parallel_residual"})) spec.residual = Residual::ParallelOwnNorms;
  fill_dropout(config, spec, {"attention_dropout", "hidden_dropout"});
}

void fill_gptj(HfConfig& config, ModelSpec& spec) {
  fill_gpt_like(config, spec, {"layer_norm_epsilon"});
  const auto inner = config.optional_integer({"n_inner"});
  spec.ffn_size = inner.value_or(4 * spec.hidden_size);
  spec.activation = config.activation({"activation_function"});
  spec.rope_size = config.positive({"rotary_dim"});
  spec.residual = Residual::Parallel;
  spec.mlp_bias = spec.head_bias = true;
  fill_dropout(config, spec, {"attn_pdrop", "embd_pdrop", "resid_pdrop"});
}

void fill_phi(HfConfig& config, ModelSpec& spec) {
  fill_gpt_like(config, spec, {"layer_norm_eps"});
  fill_rope(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = spec.head_bias = true;
  spec.residual = Residual::Parallel;
  if (config.flag({"qk_layernorm"})) {
    spec.qk_norm = true;
    predict_only(spec, "layer norms of queries and keys (qk_layernorm)");
  }
  fill_dropout(config, spec, {"attention_dropout", "resid_pdrop", "embd_pdrop"});
}

void fill_falcon(HfConfig& config, ModelSpec& spec) {
  fill_gpt_like(config, spec, {"layer_norm_epsilon"});
  const bool grouped = config.flag({"new_decoder_architecture"});
  if (grouped)
    spec.num_kv_heads = config.positive({"num_kv_heads", "n_head_kv"});
  else
    spec.num_kv_heads = config.flag({"multi_query"}) ? 1 : spec.num_heads;
  if (config.flag({"alibi"}))
    spec.positions = Positions::Alibi;
  else
    fill_rope(config, spec);
  spec.ffn_size = config.optional_integer({"ffn_hidden_size"}).value_or(4 * spec.hidden_size);
  spec.activation = config.activation({"activation"});
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = config.flag({"bias"});
  const int norms = config.optional_integer({"num_ln_in_parallel_attn"}).value_or(grouped ? 2 : 1);
  if (grouped || config.flag({"parallel_attn"}))
    spec.residual = grouped && norms == 2 ? Residual::ParallelOwnNorms : Residual::Parallel;
  fill_dropout(config, spec, {"attention_dropout", "hidden_dropout"});
}

void fill_bloom(HfConfig& config, ModelSpec& spec) {
  fill_gpt_like(config, spec, {"layer_norm_epsilon"});
  spec.positions = Positions::Alibi;
  spec.ffn_size = 4 * spec.hidden_size;
  spec.activation = ActivationKind::GeluTanh;
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = true;
  spec.embedding_norm = true;
  config.ignore("n_inner", "every bloom has 4 * hidden_size");
  predict_only_if(config, spec, "apply_residual_connection_post_layernorm", false,
                  "a residual stream that begins behind the norm");
  fill_dropout(config, spec, {"attention_dropout", "hidden_dropout"});
}

void fill_mpt(HfConfig& config, ModelSpec& spec) {
  fill_gpt_like(config, spec, {"layer_norm_epsilon"});
  spec.norm_bias = !config.flag({"no_bias"});
  spec.ffn_size = expanded_width(config, spec, {"expansion_ratio"});
  spec.activation = ActivationKind::Gelu;
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = spec.norm_bias;
  spec.positions = Positions::Learned;
  const auto attention = config.object("attn_config");
  if (!attention || attention->own_flag("alibi")) spec.positions = Positions::Alibi;
  if (attention) spec.num_kv_heads = attention->own_size("kv_n_heads").value_or(spec.num_kv_heads);
  if (attention && attention->own_number("clip_qkv"))
    predict_only(spec, "queries, keys and values that are clipped (attn_config.clip_qkv)");
  config.ignore("logit_scale", "a scale of the logits in generation");
}

/// The table of positions has two rows more than positions.
void fill_opt(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  spec.norm = Norm::LayerNorm;
  spec.mlp = Mlp::Plain;
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.positions = Positions::Learned;
  spec.max_positions = sum_of_sizes(spec.max_positions, 2);
  spec.ffn_size = config.positive({"ffn_dim"});
  spec.activation = config.activation({"activation_function"});
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = config.flag({"enable_bias"});
  if (!config.flag({"do_layer_norm_before"})) {
    spec.norm_placement = NormPlacement::Post;
    predict_only(spec, "an embedding of another width, with a projection (word_embed_proj_dim)");
  }
  const auto width = config.optional_integer({"word_embed_proj_dim"});
  if (width && *width != spec.hidden_size && spec.only_predicted.empty())
    predict_only(spec, "an embedding of another width, with a projection (word_embed_proj_dim)");
  fill_dropout(config, spec, {"dropout", "attention_dropout"});
}

void fill_starcoder2(HfConfig& config, ModelSpec& spec) {
  fill_gpt_like(config, spec, {"norm_epsilon"});
  fill_rope(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = config.flag({"use_bias"});
  const auto window = config.optional_integer({"sliding_window"});
  set_mixers(spec, uniform(spec, window ? Mixer::Sliding : Mixer::Full));
  spec.window = window.value_or(0);
  fill_dropout(config, spec, {"attention_dropout", "residual_dropout", "embedding_dropout"});
}

/// Both halves read one norm, without a bias; logits are scaled.
void fill_cohere(HfConfig& config, ModelSpec& spec) {
  fill_gpt_like(config, spec, {"layer_norm_eps"});
  fill_rope(config, spec);
  spec.norm_bias = false;
  spec.mlp = Mlp::Gated;
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
  spec.residual = Residual::Parallel;
  spec.logit_scale = config.number({"logit_scale"});
  if (config.flag_or({"use_qk_norm"}, false)) {
    spec.qk_norm = true;
    spec.qk_norm_over = QkNorm::EachHead;
  }
}

/// Full layers know no positions.
void fill_cohere2(HfConfig& config, ModelSpec& spec) {
  fill_cohere(config, spec);
  const bool listed = config.has("layer_types");
  const int interval = config.has("sliding_window_pattern") && !listed
                           ? config.positive({"sliding_window_pattern"})
                           : 4;
  if (listed) config.ignore("sliding_window_pattern", "said by layer_types");
  fill_layer_types(config, spec, full_every(spec, interval, Mixer::Sliding));
  LayerChanges changes(spec.num_layers);
  for (int layer = 0; layer < spec.num_layers; ++layer)
    if (mixer_of_layer(spec, layer) == Mixer::Full) changes.of(layer).rotates = false;
  changes.store(spec);
}

}  // namespace

std::vector<HfFamily> gpt_families() {
  return {{"bloom", fill_bloom},       {"cohere", fill_cohere}, {"cohere2", fill_cohere2},
          {"falcon", fill_falcon},     {"gpt2", fill_gpt2},     {"gpt_bigcode", fill_gpt_bigcode},
          {"gpt_neox", fill_gpt_neox}, {"gptj", fill_gptj},     {"mpt", fill_mpt},
          {"opt", fill_opt},           {"phi", fill_phi},       {"starcoder2", fill_starcoder2}};
}

}  // namespace meshplan::models
