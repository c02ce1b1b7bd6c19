// One function per Hugging Face model type. The defaults are those of the type's configuration
// class in transformers; sizes that every published config states have none, so that a misspelled
// one is an error.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/index.hpp"
#include "core/limits.hpp"
#include "hf_config.hpp"

namespace meshplan::models {
namespace {

using Layers = std::vector<LayerAttention>;

Layers uniform(const ModelSpec& spec, LayerAttention kind) {
  return Layers(static_cast<std::size_t>(spec.num_layers), kind);
}

/// Every `interval`-th layer is Full, the others are `kind`.
Layers full_every(const ModelSpec& spec, int interval, LayerAttention kind) {
  Layers layers = uniform(spec, kind);
  for (int i = 0; i < spec.num_layers; ++i)
    if ((i + 1) % interval == 0) layers[at(i)] = LayerAttention::Full;
  return layers;
}

void set_attention_bias(HfConfig& config, ModelSpec& spec) {
  spec.qkv_bias = spec.attention_out_bias = config.flag({"attention_bias"});
}

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

void fill_llama(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
  spec.mlp_bias = config.flag({"mlp_bias"});
}

void fill_mistral(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  // "sliding_window": null means none, while an absent key means the class's 4096.
  const bool sliding = config.optional_integer({"sliding_window"}).has_value();
  fill_layer_types(config, spec,
                   uniform(spec, sliding ? LayerAttention::Sliding : LayerAttention::Full));
}

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
  Layers layers = uniform(spec, LayerAttention::Full);
  const bool sliding = config.flag({"use_sliding_window"});
  if (!sliding) ignore_window(config);
  if (sliding) {
    const int first = std::min(config.integer({"max_window_layers"}), spec.num_layers);
    std::fill(layers.begin() + first, layers.end(), LayerAttention::Sliding);
  }
  require_absent_or(config, "use_mrope", false, "positions have one dimension");
  fill_layer_types(config, spec, std::move(layers));
}

void fill_qwen2(HfConfig& config, ModelSpec& spec) {
  fill_qwen_dense(config, spec);
  spec.qkv_bias = true;
  config.assume("qkv bias = true, output bias = false (every qwen2; it has no key)");
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
  moe.router.aux_loss_coefficient = balance_loss(config);
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
  fill_layer_types(config, spec,
                   uniform(spec, sliding ? LayerAttention::Sliding : LayerAttention::Full));
  fill_qwen_moe(config, spec);
}

void fill_qwen3_next(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.activation = config.activation({"hidden_act"});
  spec.qk_norm = true;
  spec.attention_output_gate = true;
  set_attention_bias(config, spec);
  const bool listed = config.has("layer_types");
  if (listed) config.ignore("full_attention_interval", "said by layer_types");
  fill_layer_types(config, spec,
                   listed ? Layers{}
                          : full_every(spec, config.positive({"full_attention_interval"}),
                                       LayerAttention::Linear));
  LinearAttentionSpec linear;
  linear.num_key_heads = config.integer({"linear_num_key_heads"});
  linear.num_value_heads = config.integer({"linear_num_value_heads"});
  linear.key_head_size = config.integer({"linear_key_head_dim"});
  linear.value_head_size = config.integer({"linear_value_head_dim"});
  linear.conv_size = config.integer({"linear_conv_kernel_dim"});
  spec.linear_attention = linear;
  fill_qwen_moe(config, spec);
  spec.moe->shared_expert_ffn_size = config.integer({"shared_expert_intermediate_size"});
  spec.moe->shared_expert_gate = spec.moe->shared_expert_ffn_size > 0;
  spec.mtp_layers = config.integer({"num_nextn_predict_layers", "mtp_num_hidden_layers"});
}

void fill_mixtral(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.activation = config.activation({"hidden_act"});
  MoeSpec moe;
  moe.num_experts = config.positive({"num_local_experts", "num_experts"});
  moe.top_k = config.positive({"num_experts_per_tok"});
  moe.expert_ffn_size = config.positive({"intermediate_size"});
  moe.router.aux_loss_coefficient = balance_loss(config);
  require_no_jitter(config);
  spec.moe = std::move(moe);
  const bool sliding = config.optional_integer({"sliding_window"}).has_value();
  fill_layer_types(config, spec,
                   uniform(spec, sliding ? LayerAttention::Sliding : LayerAttention::Full));
}

void fill_gpt_oss(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  if (config.activation({"hidden_act"}) != ActivationKind::Silu)
    config.fail("hidden_act", "gpt_oss has only 'silu' (in its clamped form)");
  if (config.number({"swiglu_limit"}) != 7.0)
    config.fail("swiglu_limit", "gate and up are clamped to 7, as in the published models");
  spec.activation = ActivationKind::ClampedSilu;
  set_attention_bias(config, spec);
  spec.attention_sinks = true;
  fill_layer_types(config, spec, full_every(spec, 2, LayerAttention::Sliding));
  MoeSpec moe;
  moe.num_experts = config.positive({"num_local_experts", "num_experts"});
  moe.top_k = config.positive({"num_experts_per_tok", "experts_per_token"});
  moe.expert_ffn_size = config.positive({"intermediate_size"});
  moe.expert_bias = true;
  moe.router.bias = true;
  moe.router.aux_loss_coefficient = balance_loss(config);
  spec.moe = std::move(moe);
}

void fill_deepseek_router(HfConfig& config, RouterSpec& router) {
  const std::string score = config.text({"scoring_func"});
  if (score != "sigmoid" && score != "softmax")
    config.fail("scoring_func", unknown_name_message("score", score, {"sigmoid", "softmax"}));
  router.score = score == "sigmoid" ? RouterScore::Sigmoid : RouterScore::Softmax;
  const std::string method = config.text({"topk_method"});
  if (method != "noaux_tc" && method != "greedy" && method != "group_limited_greedy")
    config.fail(
        "topk_method",
        unknown_name_message("method", method, {"noaux_tc", "greedy", "group_limited_greedy"}));
  router.correction_bias = method == "noaux_tc";
  router.normalize_top_k = config.flag({"norm_topk_prob"});
  router.scaling_factor = config.number({"routed_scaling_factor"});
  if (method == "greedy") return;
  router.num_groups = config.positive({"n_group"});
  router.top_groups = config.positive({"topk_group"});
}

void fill_deepseek_v3(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_rope(config, spec);
  spec.norm_epsilon = config.number({"rms_norm_eps"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
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
  fill_dropout(config, spec, {"attention_dropout"});
  for (const char* key : {"aux_loss_alpha", "seq_aux"})
    config.ignore(key,
                  "transformers trains this model type without a balance loss; "
                  "moe.router.aux_loss_coefficient of a meshplan model sets one");
  spec.head_size = mla.qk_nope_head_size + mla.qk_rope_head_size;
  spec.num_kv_heads = spec.num_heads;
  spec.rope_size.reset();

  MoeSpec moe;
  moe.num_experts = config.positive({"n_routed_experts", "num_local_experts"});
  moe.top_k = config.positive({"num_experts_per_tok"});
  moe.expert_ffn_size = config.width({"moe_intermediate_size"});
  const int shared = config.optional_integer({"n_shared_experts"}).value_or(0);
  if (shared > limits::kWidth / moe.expert_ffn_size)
    config.fail(
        "n_shared_experts",
        fmt::format("{} experts of moe_intermediate_size {} are wider than {}; at most {}", shared,
                    moe.expert_ffn_size, limits::kWidth, limits::kWidth / moe.expert_ffn_size));
  moe.shared_expert_ffn_size = shared * moe.expert_ffn_size;
  const int first_moe = config.integer({"first_k_dense_replace"});
  const int step = config.positive({"moe_layer_freq"});
  for (int i = 0; i < spec.num_layers; ++i)
    if (i < first_moe || i % step != 0) moe.dense_layers.push_back(i);
  fill_deepseek_router(config, moe.router);
  spec.moe = std::move(moe);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"});
}

void fill_gemma(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  // `hidden_act` of older files is not what the class reads.
  spec.activation = config.activation({"hidden_activation"});
  config.ignore("hidden_act", "transformers reads hidden_activation");
  spec.norm_placement = NormPlacement::PrePost;
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
  set_attention_bias(config, spec);
  const double scalar = config.number({"query_pre_attn_scalar"});
  if (scalar <= 0)
    config.fail("query_pre_attn_scalar", fmt::format("expected a positive number, got {}", scalar));
  if (scalar != spec.head_size) spec.attention_scale = 1.0 / std::sqrt(scalar);
  spec.attention_softcap = config.optional_number({"attn_logit_softcapping"});
  spec.logit_softcap = config.optional_number({"final_logit_softcapping"});
  if (config.has("use_bidirectional_attention"))
    require_absent_or(config, "use_bidirectional_attention", false, "attention is causal");
  config.ignore("use_bidirectional_attention", "it is not true: attention is causal");
}

void fill_gemma2(HfConfig& config, ModelSpec& spec) {
  fill_gemma(config, spec);
  fill_layer_types(config, spec, full_every(spec, 2, LayerAttention::Sliding));
}

void fill_gemma3(HfConfig& config, ModelSpec& spec) {
  fill_gemma(config, spec);
  spec.qk_norm = true;
  const bool listed = config.has("layer_types");
  fill_layer_types(config, spec,
                   listed ? Layers{}
                          : full_every(spec, config.positive({"sliding_window_pattern"}),
                                       LayerAttention::Sliding));
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"})
    if (listed) config.ignore(key, "said by layer_types");
  const auto rope = config.object("rope_parameters");
  const bool local_said = rope && rope->has("sliding_attention");
  if (local_said) config.ignore("rope_local_base_freq", "said by rope_parameters");
  if (!local_said) spec.local_rope_base = config.number({"rope_local_base_freq"});
  if (spec.window == 0) spec.local_rope_base.reset();
}

void fill_bert(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  if (config.flag({"is_decoder"})) config.fail("is_decoder", "a BERT decoder is not supported");
  if (const std::string kind = config.text({"position_embedding_type"}); kind != "absolute")
    config.fail("position_embedding_type",
                fmt::format("'{}' is not supported, only 'absolute'", kind));
  spec.norm = Norm::LayerNorm;
  spec.norm_placement = NormPlacement::Post;
  spec.norm_epsilon = config.number({"layer_norm_eps"});
  spec.mlp = Mlp::Plain;
  spec.activation = config.activation({"hidden_act"});
  spec.positions = Positions::Learned;
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = true;
  spec.causal = false;
  spec.token_types = config.integer({"type_vocab_size"});
  spec.embedding_norm = spec.pooler = true;
  fill_dropout(config, spec,
               {"hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"});
  const auto labels = config.num_entries("id2label");
  spec.num_classes = labels ? *labels : config.integer({"num_labels"});
}

}  // namespace

std::vector<HfFamily> hf_families() {
  return {
      {"bert", R"({"max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu",
                   "layer_norm_eps": 1e-12, "initializer_range": 0.02, "is_decoder": false,
                   "position_embedding_type": "absolute", "num_labels": 2,
                   "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
                   "num_key_value_heads": null, "head_dim": null})",
       fill_bert},
      {"deepseek_v3",
       R"({"max_position_embeddings": 4096, "hidden_act": "silu", "rms_norm_eps": 1e-6,
           "initializer_range": 0.02, "tie_word_embeddings": false, "attention_bias": false,
           "rope_theta": 10000.0, "partial_rotary_factor": null,
           "n_shared_experts": 1, "n_routed_experts": 256,
           "routed_scaling_factor": 2.5, "kv_lora_rank": 512, "q_lora_rank": 1536,
           "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128, "n_group": 8,
           "topk_group": 4, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
           "moe_layer_freq": 1, "norm_topk_prob": true, "scoring_func": "sigmoid",
           "topk_method": "noaux_tc", "num_nextn_predict_layers": 0})",
       fill_deepseek_v3},
      {"gemma2",
       R"({"vocab_size": 256000, "num_attention_heads": 8, "num_key_value_heads": 4,
           "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
           "max_position_embeddings": 8192, "initializer_range": 0.02, "rms_norm_eps": 1e-6,
           "tie_word_embeddings": true, "rope_theta": 10000.0, "partial_rotary_factor": null,
           "attention_bias": false, "query_pre_attn_scalar": 256, "sliding_window": 4096,
           "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0})",
       fill_gemma2},
      {"gemma3_text",
       R"({"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4,
           "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
           "max_position_embeddings": 131072, "initializer_range": 0.02, "rms_norm_eps": 1e-6,
           "tie_word_embeddings": true, "rope_theta": 1000000.0, "partial_rotary_factor": null,
           "attention_bias": false, "query_pre_attn_scalar": 256, "sliding_window": 4096,
           "final_logit_softcapping": null, "attn_logit_softcapping": null,
           "rope_local_base_freq": 10000.0, "sliding_window_pattern": 6})",
       fill_gemma3},
      {"gpt2",
       R"({"max_position_embeddings": 1024, "n_inner": null, "activation_function": "gelu_new",
           "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "tie_word_embeddings": true,
           "scale_attn_weights": true, "scale_attn_by_inverse_layer_idx": false,
           "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "num_key_value_heads": null,
           "head_dim": null})",
       fill_gpt2},
      {"gpt_oss",
       R"({"max_position_embeddings": 131072, "hidden_act": "silu", "rms_norm_eps": 1e-5,
           "initializer_range": 0.02, "tie_word_embeddings": false, "attention_bias": true,
           "rope_theta": 150000.0, "partial_rotary_factor": null, "num_key_value_heads": 8,
           "head_dim": 64, "sliding_window": 128, "num_local_experts": 128,
           "num_experts_per_tok": 4, "router_aux_loss_coef": 0.001,
           "output_router_logits": false, "swiglu_limit": 7.0})",
       fill_gpt_oss},
      {"llama",
       R"({"max_position_embeddings": 2048, "hidden_act": "silu", "rms_norm_eps": 1e-6,
           "initializer_range": 0.02, "tie_word_embeddings": false, "attention_bias": false,
           "mlp_bias": false, "rope_theta": 10000.0, "partial_rotary_factor": null,
           "num_key_value_heads": null, "head_dim": null})",
       fill_llama},
      {"mistral",
       R"({"max_position_embeddings": 131072, "hidden_act": "silu", "rms_norm_eps": 1e-6,
           "initializer_range": 0.02, "tie_word_embeddings": false, "rope_theta": 10000.0,
           "partial_rotary_factor": null, "num_key_value_heads": 8, "head_dim": null,
           "sliding_window": 4096})",
       fill_mistral},
      {"mixtral",
       R"({"max_position_embeddings": 131072, "hidden_act": "silu", "rms_norm_eps": 1e-5,
           "initializer_range": 0.02, "tie_word_embeddings": false, "rope_theta": 1000000.0,
           "partial_rotary_factor": null, "num_key_value_heads": 8, "head_dim": null,
           "sliding_window": null, "num_local_experts": 8, "num_experts_per_tok": 2,
           "router_aux_loss_coef": 0.001, "output_router_logits": false})",
       fill_mixtral},
      {"qwen2",
       R"({"max_position_embeddings": 32768, "hidden_act": "silu", "rms_norm_eps": 1e-6,
           "initializer_range": 0.02, "tie_word_embeddings": false, "rope_theta": 10000.0,
           "partial_rotary_factor": null, "num_key_value_heads": 32, "head_dim": null,
           "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28})",
       fill_qwen2},
      {"qwen3",
       R"({"max_position_embeddings": 32768, "hidden_act": "silu", "rms_norm_eps": 1e-6,
           "initializer_range": 0.02, "tie_word_embeddings": false, "rope_theta": 10000.0,
           "partial_rotary_factor": null, "num_key_value_heads": 32, "head_dim": 128,
           "attention_bias": false, "use_sliding_window": false, "sliding_window": 4096,
           "max_window_layers": 28})",
       fill_qwen3},
      {"qwen3_moe",
       R"({"max_position_embeddings": 32768, "hidden_act": "silu", "rms_norm_eps": 1e-6,
           "initializer_range": 0.02, "tie_word_embeddings": false, "rope_theta": 10000.0,
           "partial_rotary_factor": null, "num_key_value_heads": 4, "head_dim": null,
           "attention_bias": false, "use_sliding_window": false, "sliding_window": 4096,
           "decoder_sparse_step": 1, "mlp_only_layers": null, "moe_intermediate_size": 768,
           "num_experts_per_tok": 8, "num_experts": 128, "norm_topk_prob": false,
           "router_aux_loss_coef": 0.001, "output_router_logits": false})",
       fill_qwen3_moe},
      {"qwen3_next",
       R"({"max_position_embeddings": 32768, "hidden_act": "silu", "rms_norm_eps": 1e-6,
           "initializer_range": 0.02, "tie_word_embeddings": false, "rope_theta": 10000.0,
           "partial_rotary_factor": 0.25, "num_key_value_heads": 2, "head_dim": 256,
           "attention_bias": false, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
           "linear_value_head_dim": 128, "linear_num_key_heads": 16,
           "linear_num_value_heads": 32, "full_attention_interval": 4,
           "decoder_sparse_step": 1, "mlp_only_layers": null, "moe_intermediate_size": 512,
           "shared_expert_intermediate_size": 512, "num_experts_per_tok": 10,
           "num_experts": 512, "norm_topk_prob": true, "router_aux_loss_coef": 0.001,
           "output_router_logits": false,
           "num_nextn_predict_layers": 0})",
       fill_qwen3_next},
  };
}

}  // namespace meshplan::models
