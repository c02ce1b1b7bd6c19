// Mamba, gated convolutions and lightning attention, alone and between layers of attention.
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

int first_width(HfConfig& config, Keys keys) {
  return config.integer_or_list(keys).front();
}

/// Letters of a pattern, one a layer: M = Mamba 2, * = attention, - = MLP, E = experts.
void fill_letters(const HfConfig& config, ModelSpec& spec, const std::string& letters) {
  Mixers mixers;
  std::vector<FeedForward> ffns;
  for (const char letter : letters) {
    if (std::string_view("M*-E").find(letter) == std::string_view::npos)
      config.fail("hybrid_override_pattern",
                  fmt::format("'{}' is no layer; expected M, *, - or E", letter));
    mixers.push_back(letter == 'M' ? Mixer::Mamba : letter == '*' ? Mixer::Full : Mixer::None);
    ffns.push_back(letter == '-'   ? FeedForward::Dense
                   : letter == 'E' ? FeedForward::Moe
                                   : FeedForward::None);
  }
  set_mixers(spec, mixers);
  spec.ffn_pattern = std::move(ffns);
}

std::string letters_of(HfConfig& config) {
  if (config.has("hybrid_override_pattern")) return config.text({"hybrid_override_pattern"});
  std::string letters;
  for (const std::string& kind : config.texts({"layers_block_type", "layer_types"}))
    letters += kind == "mamba" || kind == "linear_attention"     ? 'M'
               : kind == "attention" || kind == "full_attention" ? '*'
               : kind == "moe"                                   ? 'E'
                                                                 : '-';
  return letters;
}

/// Every layer is one half: a mixer or what follows one (NVIDIA 2025, Nemotron-H and Nemotron 3).
void fill_nemotron_h(HfConfig& config, ModelSpec& spec) {
  const std::string letters = letters_of(config);
  if (letters.empty() || letters.size() > limits::kLayers)
    config.fail("hybrid_override_pattern", "expected a letter for each layer");
  spec.num_layers = static_cast<int>(letters.size());
  config.ignore("num_hidden_layers", "a letter or a kind for each layer says it");
  spec.hidden_size = config.width({"hidden_size"});
  spec.num_heads = config.positive({"num_attention_heads"});
  spec.vocab_size = config.positive({"vocab_size"});
  spec.max_positions = config.positive({"max_position_embeddings"});
  spec.init_std = config.number({"initializer_range"});
  spec.num_kv_heads = config.positive({"num_key_value_heads"});
  spec.head_size = config.positive(config.has("attention_head_dim") ? Keys{"attention_head_dim"}
                                                                    : Keys{"head_dim"});
  fill_letters(config, spec, letters);
  const bool any_mamba = letters.find('M') != std::string::npos;
  spec.positions = Positions::None;
  for (const char* key : {"rope_theta", "partial_rotary_factor", "rope_scaling"})
    config.ignore(key, "no nemotron_h rotates");
  spec.norm_epsilon = config.number({"layer_norm_epsilon", "norm_eps", "rms_norm_eps"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.mlp = Mlp::Plain;
  spec.activation = config.activation({"mlp_hidden_act"});
  set_attention_bias(config, spec);
  spec.mlp_bias = config.flag({"mlp_bias"});
  if (any_mamba)
    spec.mamba = MambaSpec{.num_heads = config.positive({"mamba_num_heads"}),
                           .head_size = config.positive({"mamba_head_dim"}),
                           .state_size = config.positive({"ssm_state_size"}),
                           .num_groups = config.positive({"n_groups"}),
                           .conv_size = config.positive({"conv_kernel"}),
                           .conv_bias = config.flag({"use_conv_bias"}),
                           .projection_bias = config.flag({"use_bias"}),
                           .chunk_size = config.positive({"chunk_size"})};
  if (letters.find('-') != std::string::npos)
    spec.ffn_size = first_width(config, {"intermediate_size"});
  if (letters.find('E') != std::string::npos) {
    MoeSpec moe;
    moe.num_experts = config.positive({"n_routed_experts"});
    moe.top_k = config.positive({"num_experts_per_tok"});
    moe.expert_ffn_size = config.positive({"moe_intermediate_size"});
    if (config.integer({"n_shared_experts"}) > 0)
      moe.shared_expert_ffn_size = config.integer({"moe_shared_expert_intermediate_size"});
    moe.latent_size = config.optional_integer({"moe_latent_size"});
    moe.router = {.score = RouterScore::Sigmoid,
                  .normalize_top_k = config.flag({"norm_topk_prob"}),
                  .scaling_factor = config.number({"routed_scaling_factor"}),
                  .correction_bias = true,
                  .num_groups = config.positive({"n_group"}),
                  .top_groups = config.positive({"topk_group"})};
    spec.moe = std::move(moe);
  }
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"});
  for (const char* key : {"expand",
                          "mamba_proj_bias",
                          "mamba_hidden_act",
                          "time_step_limit",
                          "time_step_rank",
                          "norm_eps",
                          "rms_norm_eps",
                          "sliding_window",
                          "mtp_hybrid_override_pattern",
                          "mtp_layers_block_type",
                          "head_dim",
                          "intermediate_size",
                          "time_step_min",
                          "time_step_max",
                          "time_step_floor",
                          "rescale_prenorm_residual",
                          "residual_in_fp32",
                          "moe_intermediate_size",
                          "hidden_dropout",
                          "num_logits_to_keep",
                          "use_mamba_kernels",
                          "moe_shared_expert_overlap"})
    if (!config.was_read(key))
      config.ignore(key, "the class does not read it, or it is of no layer");
}

/// Mamba 2 as Granite 4, Bamba and Falcon-H1 name its keys.
MambaSpec read_mamba2(HfConfig& config, int inner) {
  MambaSpec mamba{.num_heads = config.positive({"mamba_n_heads"}),
                  .state_size = config.positive({"mamba_d_state"}),
                  .num_groups = config.positive({"mamba_n_groups"}),
                  .conv_size = config.positive({"mamba_d_conv"}),
                  .conv_bias = config.flag({"mamba_conv_bias"}),
                  .projection_bias = config.flag({"mamba_proj_bias"}),
                  .chunk_size = config.positive({"mamba_chunk_size"})};
  mamba.head_size = std::max(1, inner / mamba.num_heads);
  config.ignore("mamba_d_head", "the inner width over mamba_n_heads");
  return mamba;
}

void fill_granite_hybrid(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
  spec.embedding_scale = config.number({"embedding_multiplier"});
  spec.attention_scale = config.number({"attention_multiplier"});
  if (const double scale = config.number({"residual_multiplier"}); scale != 1.0)
    spec.residual_scale = scale;
  if (const double scale = config.number({"logits_scaling"}); scale != 1.0)
    spec.logit_scale = 1.0 / scale;
  const auto positions = config.own_text("position_embedding_type");
  if (positions != "rope") {
    spec.positions = Positions::None;
    spec.rope_scaling.reset();
  }
  fill_layer_types(config, spec, uniform(spec, Mixer::Mamba));
  for (Mixer& mixer : spec.layer_pattern)  // transformers 5 says "linear_attention"
    if (mixer == Mixer::Linear) mixer = Mixer::Mamba;
  if (has_mixer(spec, Mixer::Mamba))
    spec.mamba = read_mamba2(config, expanded_width(config, spec, {"mamba_expand"}));
  const int shared = config.integer({"shared_intermediate_size"});
  if (const int experts = config.integer({"num_local_experts"}); experts > 0) {
    MoeSpec moe{.num_experts = experts, .top_k = config.positive({"num_experts_per_tok"})};
    moe.expert_ffn_size = config.positive({"intermediate_size"});
    moe.shared_expert_ffn_size = shared;
    moe.router.aux_loss_coefficient = balance_loss(config, spec);
    spec.moe = std::move(moe);
  } else {
    spec.ffn_size = shared;
  }
  for (const char* key :
       {"intermediate_size", "num_experts_per_tok", "init_method", "normalization_function"})
    if (!config.was_read(key)) config.ignore(key, "no layer has experts, or alike in all");
}

void fill_bamba(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  set_attention_bias(config, spec);
  spec.mlp_bias = config.flag({"mlp_bias"});
  Mixers mixers = uniform(spec, Mixer::Mamba);
  for (const int layer : config.integers({"attn_layer_indices"}))
    if (layer < spec.num_layers) mixers[at(layer)] = Mixer::Full;
  set_mixers(spec, mixers);
  if (has_mixer(spec, Mixer::Mamba))
    spec.mamba = read_mamba2(config, expanded_width(config, spec, {"mamba_expand"}));
  if (config.has("attn_rotary_emb")) spec.rope_size = config.positive({"attn_rotary_emb"});
  config.ignore("z_loss_coefficient", "0 in every published bamba");
}

/// Attention and Mamba 2 beside each other in every layer.
void fill_falcon_h1(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  set_attention_bias(config, spec);
  spec.mlp_bias = config.flag({"mlp_bias"});
  set_mixers(spec, uniform(spec, Mixer::AttentionAndMamba));
  const auto inner = config.optional_integer({"mamba_d_ssm"});
  spec.mamba = read_mamba2(config, inner.value_or(expanded_width(config, spec, {"mamba_expand"})));
  config.ignore("mamba_expand", "said by mamba_d_ssm");
  spec.mamba->norm = config.flag({"mamba_rms_norm"});
  predict_only(spec, "multipliers of most products' inputs and outputs (every falcon_h1)");
  for (const char* key :
       {"lm_head_multiplier", "embedding_multiplier", "mlp_multipliers", "key_multiplier",
        "attention_out_multiplier", "attention_in_multiplier", "ssm_multipliers",
        "ssm_in_multiplier", "ssm_out_multiplier", "mamba_norm_before_gate", "projectors_bias",
        "mlp_expansion_factor", "mamba_use_mlp", "attn_layer_indices"})
    config.ignore(key, "changes values, not what is computed");
}

MambaSpec read_mamba1(HfConfig& config, int inner, int hidden, Keys state, Keys taps, Keys rank,
                      Keys conv_bias, Keys bias) {
  MambaSpec mamba{.version = 1,
                  .num_heads = inner,
                  .head_size = 1,
                  .state_size = config.positive(state),
                  .conv_size = config.positive(taps),
                  .conv_bias = config.flag(conv_bias),
                  .projection_bias = config.flag(bias)};
  const auto said = config.integer_unless_text(rank);
  mamba.time_step_rank = said.value_or((hidden + 15) / 16);
  return mamba;
}

/// Attention in one layer of some, experts in every second.
void fill_jamba(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  spec.positions = Positions::None;
  spec.rope_scaling.reset();
  config.ignore("rope_theta", "no jamba rotates");
  const int period = config.positive({"attn_layer_period"});
  const int offset = config.integer({"attn_layer_offset"});
  Mixers mixers = uniform(spec, Mixer::Mamba);
  for (int i = 0; i < spec.num_layers; ++i)
    if (i % period == offset) mixers[at(i)] = Mixer::Full;
  set_mixers(spec, mixers);
  if (has_mixer(spec, Mixer::Mamba)) {
    spec.mamba = read_mamba1(config, expanded_width(config, spec, {"mamba_expand"}),
                             spec.hidden_size, {"mamba_d_state"}, {"mamba_d_conv"},
                             {"mamba_dt_rank"}, {"mamba_conv_bias"}, {"mamba_proj_bias"});
    spec.mamba->inner_norms = true;
  }
  const int experts = config.positive({"num_experts"});
  const int every = config.positive({"expert_layer_period"});
  const int first = config.integer({"expert_layer_offset"});
  if (experts == 1) return;
  MoeSpec moe{.num_experts = experts, .top_k = config.positive({"num_experts_per_tok"})};
  moe.expert_ffn_size = spec.ffn_size;
  moe.router.normalize_top_k = false;
  moe.router.aux_loss_coefficient = balance_loss(config, spec);
  for (int i = 0; i < spec.num_layers; ++i)
    if (i % every != first) moe.dense_layers.push_back(i);
  spec.moe = std::move(moe);
}

void fill_pure_sizes(HfConfig& config, ModelSpec& spec) {
  spec.num_layers = config.layers({"num_hidden_layers", "n_layer"});
  spec.hidden_size = config.width({"hidden_size", "d_model"});
  spec.vocab_size = config.positive({"vocab_size"});
  spec.max_positions = config.positive({"max_position_embeddings"});
  spec.init_std = config.number({"initializer_range"});
  spec.norm_epsilon = config.number({"layer_norm_epsilon"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.positions = Positions::None;
  spec.num_heads = spec.num_kv_heads = 1;
  spec.head_size = spec.hidden_size;
  set_mixers(spec, uniform(spec, Mixer::Mamba));
  spec.ffn_pattern = {FeedForward::None};
}

void fill_mamba(HfConfig& config, ModelSpec& spec) {
  fill_pure_sizes(config, spec);
  const bool said = config.has("intermediate_size");
  const int inner =
      said ? config.positive({"intermediate_size"}) : expanded_width(config, spec, {"expand"});
  config.ignore("expand", "said by intermediate_size");
  spec.mamba = read_mamba1(config, inner, spec.hidden_size, {"state_size"}, {"conv_kernel"},
                           {"time_step_rank"}, {"use_conv_bias"}, {"use_bias"});
}

/// Norms of the time step, B and C without weights.
void fill_falcon_mamba(HfConfig& config, ModelSpec& spec) {
  fill_mamba(config, spec);
  predict_only(spec, "norms of the time step, B and C (every falcon_mamba)");
}

void fill_mamba2(HfConfig& config, ModelSpec& spec) {
  fill_pure_sizes(config, spec);
  const int size = config.positive({"head_dim"});
  const int inner = expanded_width(config, spec, {"expand"});
  spec.mamba = MambaSpec{.num_heads = std::max(1, inner / size),
                         .head_size = size,
                         .state_size = config.positive({"state_size"}),
                         .num_groups = config.positive({"n_groups"}),
                         .conv_size = config.positive({"conv_kernel"}),
                         .conv_bias = config.flag({"use_conv_bias"}),
                         .projection_bias = config.flag({"use_bias"}),
                         .chunk_size = config.positive({"chunk_size"})};
}

void fill_lfm2_layers(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  fill_rope(config, spec);
  spec.norm_epsilon = config.number({"norm_eps"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.qk_norm = true;
  Mixers mixers = uniform(spec, Mixer::Convolution);
  for (const int layer : config.integers({"full_attn_idxs"}))
    if (layer < spec.num_layers) mixers[at(layer)] = Mixer::Full;
  fill_layer_types(config, spec, std::move(mixers));
  if (has_mixer(spec, Mixer::Convolution))
    spec.convolution = ConvolutionSpec{.size = config.positive({"conv_L_cache"}),
                                       .bias = config.flag({"conv_bias"})};
  for (const char* key : {"block_dim", "block_mlp_init_scale", "block_out_init_scale",
                          "block_use_swiglu", "block_use_xavier_init", "block_norm_eps", "conv_dim",
                          "conv_dim_out", "conv_use_xavier_init", "num_heads", "use_pos_enc"})
    config.ignore(key, "alike in every published lfm2");
}

/// The MLP's width is two thirds of what is said, rounded up.
void fill_lfm2(HfConfig& config, ModelSpec& spec) {
  fill_lfm2_layers(config, spec);
  int width = config.has("intermediate_size") ? config.positive({"intermediate_size"})
                                              : config.positive({"block_ff_dim"});
  config.ignore("block_ff_dim", "said by intermediate_size");
  if (config.flag({"block_auto_adjust_ff_dim"})) {
    const int multiple = config.positive({"block_multiple_of"});
    const int two_thirds = as_size(2.0 * width / 3);
    width =
        round_up_size(as_size(config.number({"block_ffn_dim_multiplier"}) * two_thirds), multiple);
  }
  spec.ffn_size = width;
}

void fill_lfm2_moe(HfConfig& config, ModelSpec& spec) {
  fill_lfm2_layers(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  MoeSpec moe{.num_experts = config.positive({"num_experts"}),
              .top_k = config.positive({"num_experts_per_tok"}),
              .expert_ffn_size = config.positive({"moe_intermediate_size"})};
  moe.dense_layers = dense_layers(spec, config.integer({"num_dense_layers"}), 1);
  moe.router = {.score = RouterScore::Sigmoid,
                .normalize_top_k = config.flag({"norm_topk_prob"}),
                .scaling_factor = config.number({"routed_scaling_factor"}),
                .correction_bias = config.flag({"use_expert_bias"})};
  spec.moe = std::move(moe);
}

/// Lightning attention with full attention in one layer of some (MiniMax-01).
void fill_minimax(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.activation = config.activation({"hidden_act"});
  if (const auto rotated = config.optional_integer({"rotary_dim"})) spec.rope_size = *rotated;
  Mixers mixers = full_every(spec, 8, Mixer::Linear);
  const std::vector<int> kinds = config.integers({"attn_type_list"});
  for (int i = 0; i < spec.num_layers && at(i) < kinds.size(); ++i)
    mixers[at(i)] = kinds[at(i)] == 1 ? Mixer::Full : Mixer::Linear;
  fill_layer_types(config, spec, std::move(mixers));
  spec.linear_attention = LinearAttentionSpec{.num_key_heads = spec.num_heads,
                                              .num_value_heads = spec.num_heads,
                                              .key_head_size = spec.head_size,
                                              .value_head_size = spec.head_size,
                                              .conv_size = 0,
                                              .kind = LinearAttentionKind::Simple};
  MoeSpec moe{.num_experts = config.positive({"num_local_experts"}),
              .top_k = config.positive({"num_experts_per_tok"}),
              .expert_ffn_size = config.positive({"intermediate_size"})};
  moe.shared_expert_ffn_size = config.has("shared_intermediate_size")
                                   ? first_width(config, {"shared_intermediate_size"})
                                   : 0;
  moe.router.aux_loss_coefficient = balance_loss(config, spec);
  require_no_jitter(config);
  spec.moe = std::move(moe);
  predict_only(spec, "a residual stream that begins behind the norm, scaled (every minimax)");
  for (const char* key : {"layernorm_full_attention_alpha", "layernorm_full_attention_beta",
                          "layernorm_linear_attention_alpha", "layernorm_linear_attention_beta",
                          "layernorm_mlp_alpha", "layernorm_mlp_beta", "full_attn_alpha_factor",
                          "full_attn_beta_factor", "linear_attn_alpha_factor",
                          "linear_attn_beta_factor", "mlp_alpha_factor", "mlp_beta_factor",
                          "postnorm", "block_size", "shared_moe_mode", "sliding_window"})
    config.ignore(key, "changes values, not what is computed");
}

}  // namespace

std::vector<HfFamily> recurrent_families() {
  return {{"bamba", fill_bamba},
          {"falcon_h1", fill_falcon_h1},
          {"falcon_mamba", fill_falcon_mamba},
          {"granitemoehybrid", fill_granite_hybrid},
          {"jamba", fill_jamba},
          {"lfm2", fill_lfm2},
          {"lfm2_moe", fill_lfm2_moe},
          {"mamba", fill_mamba},
          {"mamba2", fill_mamba2},
          {"minimax", fill_minimax},
          {"nemotron_h", fill_nemotron_h}};
}

}  // namespace meshplan::models
