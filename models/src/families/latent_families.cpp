// Latent attention and what grew of it: DeepSeek V2 to V4, Kimi, GLM-5, LongCat.
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

void fill_latent(HfConfig& config, ModelSpec& spec) {
  MlaSpec mla;
  mla.q_lora_rank = config.optional_integer({"q_lora_rank"});
  mla.kv_lora_rank = config.integer({"kv_lora_rank"});
  mla.qk_nope_head_size = config.width({"qk_nope_head_dim"});
  mla.qk_rope_head_size = config.width({"qk_rope_head_dim"});
  mla.v_head_size = config.integer({"v_head_dim"});
  spec.mla = mla;
  // The file's head_dim is the rotated part alone and its num_key_value_heads means nothing.
  config.ignore("head_dim",
                "the sizes of a head are qk_nope_head_dim, qk_rope_head_dim and "
                "v_head_dim");
  config.ignore("num_key_value_heads", "every head of latent attention has its own keys");
  spec.head_size = sum_of_sizes(mla.qk_nope_head_size, mla.qk_rope_head_size);
  spec.num_kv_heads = spec.num_heads;
  spec.rope_size.reset();
}

void fill_deepseek_v3(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_rope(config, spec);
  spec.norm_epsilon = config.number({"rms_norm_eps"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
  fill_latent(config, spec);
  fill_dropout(config, spec, {"attention_dropout"});
  for (const char* key : {"aux_loss_alpha", "seq_aux"})
    config.ignore(key,
                  "transformers trains this model type without a balance loss; "
                  "moe.router.aux_loss_coefficient of a meshplan model sets one");
  fill_deepseek_experts(config, spec);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"});
}

/// Groups that are null are one, as its class has it.
void fill_deepseek_v2(HfConfig& config, ModelSpec& spec) {
  fill_deepseek_v3(config, spec);
  config.ignore("mlp_bias", "transformers does not read it for this model type");
}

void fill_sparse(HfConfig& config, ModelSpec& spec) {
  if (!spec.mla->q_lora_rank)
    config.fail("q_lora_rank", "the indexer reads compressed queries; expected an integer");
  spec.sparse_attention =
      SparseAttentionSpec{.index_heads = config.positive({"index_n_heads"}),
                          .index_head_size = config.positive({"index_head_dim"}),
                          .top_k = config.positive({"index_topk"})};
}

void fill_deepseek_v32(HfConfig& config, ModelSpec& spec) {
  fill_deepseek_v3(config, spec);
  fill_sparse(config, spec);
  config.ignore("layer_types", "every layer has an indexer");
}

/// GLM-5; of 5.2 some layers use the choices of the layer before them.
void fill_glm_dsa(HfConfig& config, ModelSpec& spec) {
  fill_deepseek_v3(config, spec);
  fill_sparse(config, spec);
  for (const char* key : {"qk_head_dim", "indexer_rope_interleave"})
    config.ignore(key, "how weights are stored; the function is the same");
  config.ignore("layer_types", "every layer has an indexer");
  const std::vector<std::string> types = config.texts({"indexer_types"});
  const auto shared = std::ranges::count(types, "shared");
  if (shared == 0) return;
  std::vector<int> layers;
  for (int layer = 0; layer < spec.num_layers && at(layer) < types.size(); ++layer)
    if (types[at(layer)] == "shared") layers.push_back(layer);
  LayerChanges changes(spec.num_layers);
  for (const int layer : layers) changes.of(layer).borrows_choices = true;
  changes.store(spec);
}

std::vector<int> compression_ratios(HfConfig& config, const ModelSpec& spec) {
  std::vector<int> ratios = config.integers({"compress_ratios"});
  if (ratios.empty()) {
    for (const std::string& type : config.texts({"layer_types"}))
      ratios.push_back(type == "compressed_sparse_attention"    ? 4
                       : type == "heavily_compressed_attention" ? 128
                                                                : 0);
  } else {
    config.ignore("layer_types", "said by compress_ratios");
  }
  if (ratios.empty())
    for (int layer = 0; layer < spec.num_layers; ++layer)
      ratios.push_back(layer < 2 || layer % 2 == 0 ? 128 : 4);
  if (ratios.size() < at(spec.num_layers))
    config.fail("compress_ratios", fmt::format("has {} entries, but num_hidden_layers is {}",
                                               ratios.size(), spec.num_layers));
  ratios.resize(at(spec.num_layers));  // the rest are prediction modules'
  return ratios;
}

void fill_deepseek_v4(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  spec.num_kv_heads = config.positive({"num_key_value_heads"});
  spec.head_size = config.positive({"head_dim"});
  const int rotated = config.positive({"qk_rope_head_dim"});
  fill_rope(config, spec);
  spec.rope_size.reset();
  config.ignore("partial_rotary_factor", "said by qk_rope_head_dim");
  spec.norm_epsilon = config.number({"rms_norm_eps"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.activation = config.activation({"hidden_act"});
  spec.window = config.positive({"sliding_window"});
  spec.attention_sinks = true;
  spec.compressed_attention =
      CompressedAttentionSpec{.q_lora_rank = config.positive({"q_lora_rank"}),
                              .output_groups = config.positive({"o_groups"}),
                              .output_lora_rank = config.positive({"o_lora_rank"}),
                              .rope_size = rotated,
                              .index_heads = config.positive({"index_n_heads"}),
                              .index_head_size = config.positive({"index_head_dim"}),
                              .index_top_k = config.positive({"index_topk"}),
                              .ratios = compression_ratios(config, spec)};
  MoeSpec moe;
  moe.num_experts = config.positive({"n_routed_experts"});
  moe.top_k = config.positive({"num_experts_per_tok"});
  moe.expert_ffn_size = config.width({"moe_intermediate_size"});
  moe.shared_expert_ffn_size = config.integer({"n_shared_experts"}) > 0 ? moe.expert_ffn_size : 0;
  moe.router.score = RouterScore::SqrtSoftplus;
  config.ignore("scoring_func", "every deepseek_v4 has sqrtsoftplus");
  moe.router.correction_bias = true;
  moe.router.normalize_top_k = config.flag({"norm_topk_prob"});
  moe.router.scaling_factor = config.number({"routed_scaling_factor"});
  moe.router.aux_loss_coefficient = balance_loss(config, spec);
  spec.moe = std::move(moe);
  spec.hyper_connections = HyperConnectionSpec{.streams = config.positive({"hc_mult"})};
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"});
  if (const int hashed = config.has("num_hash_layers") ? config.integer({"num_hash_layers"}) : 3)
    predict_only(spec, fmt::format("{} layers whose experts a token's id chooses (num_hash_layers)",
                                   hashed));
  predict_only(spec, "experts whose gate and up are clamped (swiglu_limit)");
  for (const char* key : {"swiglu_limit", "hc_sinkhorn_iters", "hc_eps", "compress_rope_theta",
                          "expert_dtype", "topk_method"})
    config.ignore(key, "changes values, not what is computed");
}

void fill_kimi_linear_attention(HfConfig& config, ModelSpec& spec) {
  const auto own = config.object("linear_attn_config");
  if (!own) return;
  LinearAttentionSpec linear{.kind = LinearAttentionKind::KimiDelta};
  linear.num_key_heads = linear.num_value_heads = own->own_size("num_heads").value_or(0);
  linear.key_head_size = linear.value_head_size = own->own_size("head_dim").value_or(0);
  linear.conv_size = own->own_size("short_conv_kernel_size").value_or(4);
  linear.decay_rank = linear.key_head_size;
  if (!own->own_flag("use_full_rank_gate") && !config.flag({"use_full_rank_gate"}))
    linear.gate_rank = linear.value_head_size;
  Mixers layers = uniform(spec, Mixer::Full);
  for (const int layer : own->own_integers("kda_layers"))  // counted from 1
    if (layer >= 1 && layer <= spec.num_layers) layers[at(layer - 1)] = Mixer::Linear;
  own->ignore("full_attn_layers", "all that are not kda_layers");
  own->ignore("gate_lower_bound", "changes values, not what is computed");
  set_mixers(spec, layers);
  if (has_mixer(spec, Mixer::Linear)) spec.linear_attention = linear;
}

/// Kimi Linear and K3: Kimi delta attention, and latent attention that may not rotate.
void fill_kimi_linear(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_rope(config, spec);
  spec.norm_epsilon = config.number({"rms_norm_eps"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.ffn_size = config.positive({"intermediate_size"});
  if (config.text({"hidden_act"}) == "situ")
    predict_only(spec, "activation 'situ' (hidden_act), priced as silu");
  fill_latent(config, spec);
  if (config.flag({"mla_use_nope"})) {
    spec.positions = Positions::None;
    spec.rope_scaling.reset();
  }
  spec.attention_output_gate = config.flag({"mla_use_output_gate"});
  fill_kimi_linear_attention(config, spec);
  config.ignore("num_key_value_heads", "every head of latent attention has its own keys");
  const int blocks = config.optional_integer({"attn_res_block_size"}).value_or(0);
  if (blocks > 0)
    predict_only(spec, fmt::format("inputs of half layers that are mixes of what every {} layers "
                                   "left (attn_res_block_size)",
                                   blocks));
  MoeSpec moe;
  moe.num_experts = config.positive({"num_experts"});
  moe.top_k = config.positive({"num_experts_per_token"});
  moe.expert_ffn_size = config.width({"moe_intermediate_size"});
  moe.shared_expert_ffn_size = shared_width(config, {"num_shared_experts"}, moe.expert_ffn_size);
  moe.dense_layers = dense_layers(spec, config.integer({"first_k_dense_replace"}),
                                  config.positive({"moe_layer_freq"}));
  moe.latent_size = config.optional_integer({"routed_expert_hidden_size"});
  moe.latent_norm = moe.latent_size && config.flag({"latent_moe_use_norm"});
  moe.router.score = config.text({"moe_router_activation_func"}) == "softmax"
                         ? RouterScore::Softmax
                         : RouterScore::Sigmoid;
  moe.router.correction_bias = true;
  moe.router.normalize_top_k = config.flag({"moe_renormalize"});
  moe.router.scaling_factor = config.number({"routed_scaling_factor"});
  moe.router.num_groups = config.positive({"num_expert_group"});
  moe.router.top_groups = config.positive({"topk_group"});
  if (moe.dense_layers.size() < at(spec.num_layers)) spec.moe = std::move(moe);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"});
  for (const char* key : {"topk_method", "use_grouped_topk", "activation_situ_beta",
                          "activation_situ_linear_beta", "head_dim", "norm_topk_prob"})
    config.ignore(key, "changes values, not what is computed");
}

/// DeepSeek's first mixture, without latent attention.
void fill_deepseek(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  set_attention_bias(config, spec);
  if (config.optional_integer({"n_routed_experts"})) fill_deepseek_experts(config, spec);
  for (const char* key : {"aux_loss_alpha", "seq_aux"})
    config.ignore(key, "of a balance loss; moe.router.aux_loss_coefficient sets one");
}

/// MiniCPM 3: latent attention, MiniCPM's scales.
void fill_minicpm3(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_rope(config, spec);
  spec.norm_epsilon = config.number({"rms_norm_eps"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
  fill_latent(config, spec);
  spec.embedding_scale = config.number({"scale_emb"});
  spec.residual_scale = config.number({"scale_depth"}) / std::sqrt(double(spec.num_layers));
  const double base = config.number({"dim_model_base"});
  if (base > 1) spec.logit_scale = base / spec.hidden_size;
}

/// Two blocks of latent attention and a dense MLP a layer, experts beside the second.
void fill_longcat(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_rope(config, spec);
  spec.norm_epsilon = config.number({"rms_norm_eps"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
  fill_latent(config, spec);
  // Each of its layers is two of ours, of which transformers' newer files count each.
  if (config.has("num_layers")) spec.num_layers = 2 * config.layers({"num_layers"});
  config.ignore("num_hidden_layers", "said by num_layers");
  spec.ffn_size = config.positive({"ffn_hidden_size", "intermediate_size"});
  MoeSpec moe;
  moe.num_experts = config.positive({"n_routed_experts"});
  const int nothing = config.integer({"zero_expert_num"});
  moe.top_k = config.positive({"moe_topk"});
  moe.expert_ffn_size = config.width({"expert_ffn_hidden_size", "moe_intermediate_size"});
  moe.shared_expert_ffn_size = spec.ffn_size;
  moe.router.correction_bias = true;
  moe.router.scaling_factor = config.number({"routed_scaling_factor"});
  for (int layer = 0; layer < spec.num_layers; layer += 2) moe.dense_layers.push_back(layer);
  spec.moe = std::move(moe);
  predict_only(spec, fmt::format("{} experts that do nothing (zero_expert_num), and experts that "
                                 "run beside the next attention",
                                 nothing));
  config.ignore("num_key_value_heads", "every head of latent attention has its own keys");
}

}  // namespace

std::vector<HfFamily> latent_families() {
  return {{"deepseek", fill_deepseek},       {"deepseek_v2", fill_deepseek_v2},
          {"deepseek_v3", fill_deepseek_v3}, {"deepseek_v32", fill_deepseek_v32},
          {"deepseek_v4", fill_deepseek_v4}, {"glm4_moe_lite", fill_deepseek_v3},
          {"glm_moe_dsa", fill_glm_dsa},     {"kimi_k2", fill_deepseek_v3},
          {"kimi_linear", fill_kimi_linear}, {"longcat_flash", fill_longcat},
          {"minicpm3", fill_minicpm3},       {"mistral4", fill_deepseek_v3}};
}

}  // namespace meshplan::models
