// Decoders of Llama's kind: RMS norms, rotary positions, a gated MLP.
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

void fill_llama(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
  spec.mlp_bias = config.flag({"mlp_bias"});
}

void fill_cwm(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  fill_layer_types(config, spec, full_every(spec, 4, Mixer::Sliding));
}

void fill_mistral(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  // "sliding_window": null means none, while an absent key means the class's 4096.
  const bool sliding = config.optional_integer({"sliding_window"}).has_value();
  fill_layer_types(config, spec, uniform(spec, sliding ? Mixer::Sliding : Mixer::Full));
}

void fill_phi3(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  const bool sliding = config.optional_integer({"sliding_window"}).has_value();
  set_mixers(spec, uniform(spec, sliding ? Mixer::Sliding : Mixer::Full));
  if (sliding) spec.window = config.positive({"sliding_window"});
  fill_dropout(config, spec, {"attention_dropout", "resid_pdrop", "embd_pdrop"});
}

/// OLMo's layer norms have no weights.
void fill_olmo(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  fill_rope(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.norm = Norm::LayerNorm;
  spec.norm_bias = false;
  set_attention_bias(config, spec);
  predict_only(spec, "layer norms without weights (every olmo)");
  if (config.optional_number({"clip_qkv"}))
    predict_only(spec, "queries, keys and values that are clipped (clip_qkv)");
}

void fill_olmo2(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  set_attention_bias(config, spec);
  spec.norm_placement = NormPlacement::Output;
  spec.qk_norm = true;
  spec.qk_norm_over = QkNorm::Projection;
}

void fill_olmo3(HfConfig& config, ModelSpec& spec) {
  fill_olmo2(config, spec);
  fill_layer_types(config, spec, full_every(spec, 4, Mixer::Sliding));
}

void fill_granite(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  set_attention_bias(config, spec);
  spec.mlp_bias = config.flag({"mlp_bias"});
  spec.embedding_scale = config.number({"embedding_multiplier"});
  spec.attention_scale = config.number({"attention_multiplier"});
  if (const double scale = config.number({"residual_multiplier"}); scale != 1.0)
    spec.residual_scale = scale;
  if (const double scale = config.number({"logits_scaling"}); scale != 1.0)
    spec.logit_scale = 1.0 / scale;
}

/// GLM-4 norms what its half layers give, too.
void fill_glm(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  spec.qkv_bias = config.flag({"attention_bias"});
}

void fill_glm4(HfConfig& config, ModelSpec& spec) {
  fill_glm(config, spec);
  spec.norm_placement = NormPlacement::PrePost;
}

/// EXAONE 3: a llama with other names.
void fill_exaone(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  fill_rope(config, spec);
  spec.norm_epsilon = config.number({"layer_norm_epsilon"});
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"activation_function"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  fill_dropout(config, spec, {"attention_dropout", "embed_dropout"});
}

/// A letter a layer, L = sliding, over and over, or a full layer after some; the last layer is
/// full.
Mixers exaone_pattern(HfConfig& config, const ModelSpec& spec) {
  const auto every = config.integer_unless_text({"sliding_window_pattern"});
  Mixers layers = every ? full_every(spec, *every, Mixer::Sliding) : uniform(spec, Mixer::Full);
  if (!every) {
    const std::string letters = config.text({"sliding_window_pattern"});
    for (int i = 0; i < spec.num_layers && !letters.empty(); ++i)
      if (letters[at(i) % letters.size()] == 'L') layers[at(i)] = Mixer::Sliding;
  }
  layers.back() = Mixer::Full;
  return layers;
}

/// Layers that see everything do not rotate, where others slide.
void fill_exaone4(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  spec.norm_placement = NormPlacement::Output;
  spec.qk_norm = true;
  const bool sliding = config.optional_integer({"sliding_window"}).has_value();
  const bool listed = config.has("layer_types");
  if (listed) config.ignore("sliding_window_pattern", "said by layer_types");
  Mixers layers = uniform(spec, Mixer::Full);
  if (sliding && !listed) layers = exaone_pattern(config, spec);
  fill_layer_types(config, spec, std::move(layers));
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"});
  if (!has_mixer(spec, Mixer::Sliding)) return;
  LayerChanges changes(spec.num_layers);
  for (int layer = 0; layer < spec.num_layers; ++layer)
    if (mixer_of_layer(spec, layer) == Mixer::Full) changes.of(layer).rotates = false;
  changes.store(spec);
}

void fill_smollm3(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  set_attention_bias(config, spec);
  spec.mlp_bias = config.flag({"mlp_bias"});
  const bool sliding = config.flag({"use_sliding_window"});
  if (!sliding) config.ignore("sliding_window", "use_sliding_window is false");
  fill_layer_types(config, spec, uniform(spec, sliding ? Mixer::Sliding : Mixer::Full));
  LayerChanges changes(spec.num_layers);
  for (const int layer : layers_without_rope(config, spec)) changes.of(layer).rotates = false;
  changes.store(spec);
}

void fill_ernie(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = config.flag({"use_bias"});
}

void fill_hunyuan(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  set_attention_bias(config, spec);
  spec.qk_norm = true;
  predict_only(spec, "norms of queries and keys behind their rotation (every hunyuan)");
}

void fill_seed_oss(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  spec.qkv_bias = config.flag({"attention_bias"});
  spec.attention_out_bias = config.flag({"attention_out_bias"});
  spec.mlp_bias = config.flag({"mlp_bias"});
  fill_dropout(config, spec, {"attention_dropout", "residual_dropout"});
}

void fill_apertus(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.mlp = Mlp::Plain;
  if (const std::string name = config.text({"hidden_act"}); name == "xielu")
    predict_only(spec, "activation 'xielu' (hidden_act), priced as gelu");
  spec.activation = ActivationKind::Gelu;
  set_attention_bias(config, spec);
  spec.qk_norm = true;
}

void fill_arcee(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  spec.mlp = Mlp::Plain;
  set_attention_bias(config, spec);
  spec.mlp_bias = config.flag({"mlp_bias"});
}

void fill_internlm(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  const bool bias = config.flag({"bias"});
  spec.qkv_bias = config.flag_or({"qkv_bias"}, bias);
  spec.attention_out_bias = bias;
}

/// Baichuan 7B rotates, 13B has ALiBi; the file says neither, the width does, as in its authors'
/// repository.
void fill_baichuan(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  if (spec.hidden_size >= 5120) {
    spec.positions = Positions::Alibi;
    spec.rope_scaling.reset();
    config.assume("positions = alibi (every baichuan of hidden_size 5120)");
  }
}

/// Names of ChatGLM 2 to GLM-4 as their authors published them.
void fill_chatglm(HfConfig& config, ModelSpec& spec) {
  spec.num_layers = config.layers({"num_layers", "num_hidden_layers"});
  config.ignore("num_hidden_layers", "said by num_layers");
  spec.hidden_size = config.width({"hidden_size"});
  spec.num_heads = config.positive({"num_attention_heads"});
  spec.head_size = config.positive({"kv_channels"});
  spec.vocab_size = config.positive({"padded_vocab_size", "vocab_size"});
  config.ignore("vocab_size", "said by padded_vocab_size");
  spec.max_positions = config.positive({"seq_length"});
  spec.init_std = config.number({"initializer_range"});
  spec.num_kv_heads = config.flag({"multi_query_attention"})
                          ? config.positive({"multi_query_group_num"})
                          : spec.num_heads;
  spec.rope_base = 10000.0 * config.number({"rope_ratio"});
  spec.rope_size = spec.head_size / 2;
  spec.norm_epsilon = config.number({"layernorm_epsilon"});
  spec.ffn_size = config.positive({"ffn_hidden_size"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  const bool bias = config.flag({"add_bias_linear"});
  spec.qkv_bias = bias || config.flag({"add_qkv_bias"});
  spec.attention_out_bias = spec.mlp_bias = bias;
  if (!config.flag({"rmsnorm"})) spec.norm = Norm::LayerNorm;
  fill_dropout(config, spec, {"attention_dropout", "hidden_dropout"});
  for (const char* key : {"apply_query_key_layer_scaling", "attention_softmax_in_fp32",
                          "bias_dropout_fusion", "fp32_residual_connection", "original_rope",
                          "post_layer_norm", "interleaved_qkv", "pre_seq_len", "prefix_projection",
                          "quantization_bit", "apply_residual_connection_post_layernorm"})
    config.ignore(key, "alike in every published chatglm");
}

/// The first Qwen: the file's width of the MLP is that of gate and up together.
void fill_qwen1(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  spec.rope_base = config.number({"rotary_emb_base"});
  config.ignore("rotary_pct", "every qwen rotates whole heads");
  spec.norm_epsilon = config.number({"layer_norm_epsilon"});
  spec.ffn_size = config.positive({"intermediate_size"}) / 2;
  spec.qkv_bias = true;
  spec.attention_out_bias = spec.mlp_bias = !config.flag({"no_bias"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  fill_dropout(config, spec, {"attn_dropout_prob", "emb_dropout_prob"});
  for (const char* key : {"use_dynamic_ntk", "use_logn_attn", "scale_attn_weights", "kv_channels",
                          "bf16", "fp16", "fp32", "onnx_safe", "seq_length", "use_cache_kernel",
                          "use_cache_quantization", "softmax_in_fp32"})
    config.ignore(key, "of sequences longer than the model's, or how it is computed");
}

void fill_minicpm_scales(HfConfig& config, ModelSpec& spec) {
  spec.embedding_scale = config.number({"scale_emb"});
  spec.residual_scale = config.number({"scale_depth"}) / std::sqrt(double(spec.num_layers));
  const double base = config.number({"dim_model_base"});
  if (base > 1) spec.logit_scale = base / spec.hidden_size;
}

void fill_minicpm(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  fill_minicpm_scales(config, spec);
  const int experts = config.integer({"num_experts"});
  if (experts == 0) return;
  spec.moe = MoeSpec{.num_experts = experts,
                     .top_k = config.positive({"num_experts_per_tok"}),
                     .expert_ffn_size = spec.ffn_size};
}

/// Layer norms where a llama has RMS norms.
void fill_orion(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  spec.norm = Norm::LayerNorm;
}

/// Some layers attend to an image; their weights are those of other layers.
void fill_mllama(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  const auto crossing = config.integers({"cross_attention_layers"}).size();
  if (crossing > 0)
    predict_only(spec, fmt::format("attention to an image in {} layers (cross_attention_layers), "
                                   "priced as that to the text",
                                   crossing));
}

void fill_stablelm(HfConfig& config, ModelSpec& spec) {
  fill_gpt_like(config, spec, {"layer_norm_eps"});
  fill_rope(config, spec);
  spec.mlp = Mlp::Gated;
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  spec.qkv_bias = config.flag({"use_qkv_bias"});
  if (config.flag({"use_parallel_residual"})) spec.residual = Residual::Parallel;
  if (config.flag({"qk_layernorm"})) {
    spec.qk_norm = true;
    spec.qk_norm_over = QkNorm::EachHead;
  }
}

/// Nemotron-4: layer norms whose weights begin at zero, squared ReLU.
void fill_nemotron(HfConfig& config, ModelSpec& spec) {
  fill_gpt_like(config, spec, {"norm_eps"});
  fill_rope(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
  spec.mlp_bias = config.flag({"mlp_bias"});
  fill_dropout(config, spec, {"attention_dropout", "hidden_dropout"});
}

/// Layers found by neural architecture search: each says its own widths, or that a half is missing
/// or one linear (Bercovich et al. 2024, Puzzle).
void fill_nemotron_nas(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  config.ignore("num_key_value_heads", "said by block_configs");
  config.ignore("intermediate_size", "said by block_configs");
  if (spec.hidden_size % spec.num_heads != 0)
    config.fail("num_attention_heads", "does not divide hidden_size");
  spec.head_size = spec.hidden_size / spec.num_heads;
  spec.num_kv_heads = spec.num_heads;
  fill_rope(config, spec);
  spec.norm_epsilon = config.number({"rms_norm_eps"});
  spec.activation = config.activation({"hidden_act"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  set_attention_bias(config, spec);
  spec.mlp_bias = config.flag({"mlp_bias"});
  const std::vector<HfConfig> blocks = config.objects("block_configs");
  if (blocks.size() != at(spec.num_layers))
    config.fail("block_configs", fmt::format("has {} entries, but num_hidden_layers is {}",
                                             blocks.size(), spec.num_layers));
  Mixers mixers;
  std::vector<FeedForward> ffns;
  std::vector<LayerVariant> own;
  int left_out = 0;
  for (const HfConfig& block : blocks) {
    LayerVariant variant;
    const HfConfig attention = block.needed("attention"), ffn = block.needed("ffn");
    const Mixer mixer = attention.own_flag("no_op")                 ? Mixer::None
                        : attention.own_flag("replace_with_linear") ? Mixer::Projection
                                                                    : Mixer::Full;
    const FeedForward feed = ffn.own_flag("no_op")                 ? FeedForward::None
                             : ffn.own_flag("replace_with_linear") ? FeedForward::Projection
                                                                   : FeedForward::Dense;
    if (mixer == Mixer::Full)
      variant.num_kv_heads =
          spec.num_heads / std::max(1, attention.own_size("n_heads_in_group").value_or(1));
    if (feed == FeedForward::Dense) {
      const double multiple = ffn.own_number("ffn_mult").value_or(4);
      variant.ffn_size = round_up_size(as_size(2 * multiple * spec.hidden_size / 3), 256);
    }
    if (mixer == Mixer::None && feed == FeedForward::None) {
      ++left_out;
      continue;
    }
    mixers.push_back(mixer);
    ffns.push_back(feed);
    own.push_back(variant);
  }
  if (left_out > 0) {
    config.assume(
        fmt::format("{} of {} layers do nothing and are left out", left_out, spec.num_layers));
    spec.num_layers -= left_out;
  }
  set_mixers(spec, mixers);
  set_ffns(spec, ffns);
  LayerChanges changes(spec.num_layers);
  for (int layer = 0; layer < spec.num_layers; ++layer) changes.of(layer) = own[at(layer)];
  changes.store(spec);
}

/// Qwen 2 with prediction modules.
void fill_mimo(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  spec.qkv_bias = config.flag({"attention_bias"});
  require_absent_or(config, "use_sliding_window", false, "a mimo's layers see everything");
  for (const char* key : {"sliding_window", "max_window_layers", "use_mrope"})
    config.ignore(key, "use_sliding_window is false");
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"});
}

}  // namespace

std::vector<HfFamily> llama_families() {
  return {{"apertus", fill_apertus},
          {"arcee", fill_arcee},
          {"baichuan", fill_baichuan},
          {"ernie4_5", fill_ernie},
          {"exaone", fill_exaone},
          {"chatglm", fill_chatglm},
          {"exaone4", fill_exaone4},
          {"glm", fill_glm},
          {"glm4", fill_glm4},
          {"glm4v_text", fill_glm4},
          {"granite", fill_granite},
          {"hunyuan_v1_dense", fill_hunyuan},
          {"internlm2", fill_internlm},
          {"internlm3", fill_internlm},
          {"cwm", fill_cwm},
          {"helium", fill_llama},
          {"llama", fill_llama},
          {"minicpm", fill_minicpm},
          {"mllama_text_model", fill_mllama},
          {"orion", fill_orion},
          {"qwen", fill_qwen1},
          {"xverse", fill_llama},
          {"mimo", fill_mimo},
          {"ministral3", fill_mistral},
          {"mistral", fill_mistral},
          {"nemotron", fill_nemotron},
          {"nemotron-nas", fill_nemotron_nas},
          {"olmo", fill_olmo},
          {"olmo2", fill_olmo2},
          {"olmo3", fill_olmo3},
          {"phi3", fill_phi3},
          {"seed_oss", fill_seed_oss},
          {"smollm3", fill_smollm3},
          {"stablelm", fill_stablelm}};
}

}  // namespace meshplan::models
