// Mixtures of experts over plain attention.
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

void fill_mixtral(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.activation = config.activation({"hidden_act"});
  MoeSpec moe;
  moe.num_experts = config.positive({"num_local_experts", "num_experts"});
  moe.top_k = config.positive({"num_experts_per_tok"});
  moe.expert_ffn_size = config.positive({"intermediate_size"});
  moe.router.aux_loss_coefficient = balance_loss(config, spec);
  require_no_jitter(config);
  spec.moe = std::move(moe);
  const bool sliding = config.optional_integer({"sliding_window"}).has_value();
  fill_layer_types(config, spec, uniform(spec, sliding ? Mixer::Sliding : Mixer::Full));
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
  fill_layer_types(config, spec, full_every(spec, 2, Mixer::Sliding));
  MoeSpec moe;
  moe.num_experts = config.positive({"num_local_experts", "num_experts"});
  moe.top_k = config.positive({"num_experts_per_tok", "experts_per_token"});
  moe.expert_ffn_size = config.positive({"intermediate_size"});
  moe.expert_bias = true;
  moe.router.bias = true;
  moe.router.aux_loss_coefficient = balance_loss(config, spec);
  spec.moe = std::move(moe);
}

MoeSpec read_experts(HfConfig& config, Keys count, Keys chosen, Keys width) {
  MoeSpec moe;
  moe.num_experts = config.positive(count);
  moe.top_k = config.positive(chosen);
  moe.expert_ffn_size = config.positive(width);
  return moe;
}

void fill_olmoe(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
  spec.qk_norm = true;
  spec.qk_norm_over = QkNorm::Projection;
  if (config.optional_number({"clip_qkv"}))
    predict_only(spec, "queries, keys and values that are clipped (clip_qkv)");
  MoeSpec moe =
      read_experts(config, {"num_experts"}, {"num_experts_per_tok"}, {"intermediate_size"});
  moe.router.normalize_top_k = config.flag({"norm_topk_prob"});
  moe.router.aux_loss_coefficient = balance_loss(config, spec);
  spec.moe = std::move(moe);
}

/// Layer norms with a bias, and a router that samples (Liu et al. 2024, GRIN).
void fill_phimoe(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.norm = Norm::LayerNorm;
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
  spec.head_bias = config.flag({"lm_head_bias"});
  const auto window = config.optional_integer({"sliding_window"});
  if (window && *window < spec.max_positions) {
    set_mixers(spec, uniform(spec, Mixer::Sliding));
    spec.window = *window;
  }
  spec.moe =
      read_experts(config, {"num_local_experts"}, {"num_experts_per_tok"}, {"intermediate_size"});
  spec.moe->router.aux_loss_coefficient = balance_loss(config, spec);
  predict_only(spec, "a router that samples its experts (every phimoe)");
  for (const char* key : {"router_jitter_noise", "input_jitter_noise"})
    config.ignore(key, "part of the router's sampling");
}

/// Multipliers as Granite has them; a shared expert beside where there is one.
void fill_granite_moe(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
  spec.embedding_scale = config.number({"embedding_multiplier"});
  spec.attention_scale = config.number({"attention_multiplier"});
  if (const double scale = config.number({"residual_multiplier"}); scale != 1.0)
    spec.residual_scale = scale;
  if (const double scale = config.number({"logits_scaling"}); scale != 1.0)
    spec.logit_scale = 1.0 / scale;
  spec.moe =
      read_experts(config, {"num_local_experts"}, {"num_experts_per_tok"}, {"intermediate_size"});
  spec.moe->router.aux_loss_coefficient = balance_loss(config, spec);
  if (config.has("shared_intermediate_size"))
    spec.moe->shared_expert_ffn_size = config.integer({"shared_intermediate_size"});
}

void fill_ernie_moe(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = config.flag({"use_bias"});
  MoeSpec moe = read_experts(config, {"moe_num_experts"}, {"moe_k"}, {"moe_intermediate_size"});
  moe.shared_expert_ffn_size =
      shared_width(config, {"moe_num_shared_experts"}, moe.expert_ffn_size);
  moe.router.correction_bias = true;
  const int first = config.integer({"moe_layer_start_index"});
  const int step = config.positive({"moe_layer_interval"});
  const double last_said = config.number({"moe_layer_end_index"});
  const int last = last_said < 0 ? spec.num_layers - 1 : as_size(last_said);
  for (int i = 0; i < spec.num_layers; ++i)
    if (i < first || i > last || (i + 1) % step != 0) moe.dense_layers.push_back(i);
  moe.router.aux_loss_coefficient = balance_loss(config, spec);
  spec.moe = std::move(moe);
}

/// Sizes that a file gives once or for each layer.
int first_of(HfConfig& config, Keys keys) {
  return config.integer_or_list(keys).front();
}

void fill_hunyuan_moe(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  set_attention_bias(config, spec);
  spec.qk_norm = config.flag({"use_qk_norm"});
  const int experts = first_of(config, {"num_experts"});
  if (experts <= 1) return;
  MoeSpec moe{.num_experts = experts, .top_k = first_of(config, {"moe_topk"})};
  moe.expert_ffn_size = config.has("moe_intermediate_size")
                            ? first_of(config, {"moe_intermediate_size"})
                            : spec.ffn_size;
  moe.shared_expert_ffn_size = shared_width(
      config, "num_shared_expert", first_of(config, {"num_shared_expert"}), moe.expert_ffn_size);
  const int skipped = config.integer({"moe_layer_num_skipped"});
  for (int i = 0; i < skipped && i < spec.num_layers; ++i) moe.dense_layers.push_back(i);
  spec.moe = std::move(moe);
  if (config.flag({"use_cla"})) {
    const int share = config.positive({"cla_share_factor"});
    LayerChanges changes(spec.num_layers);
    for (int layer = 0; layer < spec.num_layers; ++layer)
      if (layer % share != 0) changes.of(layer).borrows_keys = true;
    changes.store(spec);
  }
  if (spec.qk_norm)
    predict_only(spec, "norms of queries and keys behind their rotation (every hunyuan)");
}

/// GLM-4.5 to 4.7.
void fill_glm4_moe(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.activation = config.activation({"hidden_act"});
  spec.qkv_bias = config.flag({"attention_bias"});
  spec.qk_norm = config.flag({"use_qk_norm"});
  MoeSpec moe = read_experts(config, {"n_routed_experts"}, {"num_experts_per_tok"},
                             {"moe_intermediate_size"});
  moe.shared_expert_ffn_size = shared_width(config, {"n_shared_experts"}, moe.expert_ffn_size);
  moe.dense_layers = dense_layers(spec, config.integer({"first_k_dense_replace"}), 1);
  moe.router = {.score = RouterScore::Sigmoid,
                .normalize_top_k = config.flag({"norm_topk_prob"}),
                .scaling_factor = config.number({"routed_scaling_factor"}),
                .correction_bias = true,
                .num_groups = config.positive({"n_group"}),
                .top_groups = config.positive({"topk_group"})};
  spec.moe = std::move(moe);
  if (!spec.moe->dense_layers.empty()) spec.ffn_size = config.positive({"intermediate_size"});
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"});
}

void fill_dots1(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  set_attention_bias(config, spec);
  spec.qk_norm = true;
  fill_deepseek_experts(config, spec);
  for (const char* key : {"sliding_window", "max_window_layers", "layer_types"})
    config.ignore(key, "published dots see everything");
}

/// Every layer has experts, and sigmoid scores with a correction bias.
void fill_minimax_m2(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.activation = config.activation({"hidden_act"});
  if (const auto rotated = config.optional_integer({"rotary_dim"})) spec.rope_size = *rotated;
  spec.qk_norm = config.flag({"use_qk_norm"});
  spec.qk_norm_over = spec.qk_norm ? QkNorm::Projection : QkNorm::Head;
  MoeSpec moe =
      read_experts(config, {"num_local_experts"}, {"num_experts_per_tok"}, {"intermediate_size"});
  moe.shared_expert_ffn_size = config.integer({"shared_intermediate_size"});
  moe.router.score =
      config.text({"scoring_func"}) == "softmax" ? RouterScore::Softmax : RouterScore::Sigmoid;
  moe.router.correction_bias = config.flag({"use_routing_bias"});
  moe.router.aux_loss_coefficient = balance_loss(config, spec);
  require_no_jitter(config);
  spec.moe = std::move(moe);
  if (config.flag_or({"use_mtp"}, true)) spec.mtp_layers = config.integer({"num_mtp_modules"});
  for (const char* key : {"qk_norm_type", "mtp_transformer_layers", "attn_type_list"})
    config.ignore(key, "alike in every published minimax_m2");
}

/// Blocks of keys that an indexer beside plain attention chooses (MiniMax-M3).
void fill_minimax_m3(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  if (const auto rotated = config.optional_integer({"rotary_dim"})) spec.rope_size = *rotated;
  if (const std::string name = config.text({"hidden_act"}); name != "swigluoai")
    config.fail("hidden_act", "minimax_m3 has 'swigluoai'");
  spec.activation = ActivationKind::ClampedSilu;
  spec.qk_norm = config.flag({"use_qk_norm"});
  spec.attention_output_gate = config.flag({"attention_output_gate"});
  MoeSpec moe =
      read_experts(config, {"num_local_experts"}, {"num_experts_per_tok"}, {"intermediate_size"});
  if (config.integer({"n_shared_experts"}) > 0)
    moe.shared_expert_ffn_size = config.integer({"shared_intermediate_size"});
  moe.router = {.score = RouterScore::Sigmoid,
                .scaling_factor = config.number({"routed_scaling_factor"}),
                .correction_bias = config.flag({"use_routing_bias"})};
  const std::vector<int> experts = config.integers({"moe_layer_freq"});
  for (int i = 0; i < spec.num_layers && at(i) < experts.size(); ++i)
    if (experts[at(i)] == 0) moe.dense_layers.push_back(i);
  if (!moe.dense_layers.empty()) spec.ffn_size = config.positive({"dense_intermediate_size"});
  spec.moe = std::move(moe);
  if (const auto sparse = config.object("sparse_attention_config")) {
    const auto number = [&](const char* key) { return sparse->own_size(key).value_or(1); };
    const int block = number("sparse_block_size");
    spec.sparse_attention =
        SparseAttentionSpec{.index_heads = number("sparse_num_index_heads"),
                            .index_head_size = number("sparse_index_dim"),
                            .top_k = product_of_sizes(block, number("sparse_topk_blocks")),
                            .block = block};
    const std::vector<int> chooses = sparse->own_integers("sparse_attention_freq");
    LayerChanges changes(spec.num_layers);
    for (int i = 0; i < spec.num_layers && at(i) < chooses.size(); ++i)
      if (chooses[at(i)] == 0) changes.of(i).sees_all = true;
    changes.store(spec);
    for (const char* key : {"use_sparse_attention", "sparse_disable_index_value",
                            "sparse_score_type", "sparse_init_block", "sparse_local_block"})
      sparse->ignore(key, "alike in every published minimax_m3");
  }
  spec.mtp_layers = config.integer({"num_nextn_predict_layers", "num_mtp_modules"});
  for (const char* key : {"qk_norm_type", "use_gemma_norm", "scoring_func", "swiglu_alpha",
                          "swiglu_limit", "partial_rotary_factor", "moe_intermediate_size",
                          "first_k_dense_replace", "num_mtp_modules"})
    if (!config.was_read(key)) config.ignore(key, "alike in every published minimax_m3");
}

/// Arcee's Trinity: gated attention, windows between full layers that do not rotate.
void fill_afmoe(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  spec.norm_placement = NormPlacement::PrePost;
  spec.qk_norm = spec.attention_output_gate = true;
  const int every = config.positive({"global_attn_every_n_layers"});
  fill_layer_types(config, spec, full_every(spec, every, Mixer::Sliding));
  LayerChanges changes(spec.num_layers);
  for (int layer = 0; layer < spec.num_layers; ++layer)
    if (mixer_of_layer(spec, layer) == Mixer::Full) changes.of(layer).rotates = false;
  changes.store(spec);
  if (config.flag({"mup_enabled"}))
    spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
  MoeSpec moe =
      read_experts(config, {"num_experts"}, {"num_experts_per_tok"}, {"moe_intermediate_size"});
  moe.shared_expert_ffn_size = shared_width(config, {"num_shared_experts"}, moe.expert_ffn_size);
  moe.dense_layers = dense_layers(spec, config.integer({"num_dense_layers"}), 1);
  moe.router = {.score = config.text({"score_func"}) == "softmax" ? RouterScore::Softmax
                                                                  : RouterScore::Sigmoid,
                .normalize_top_k = config.flag({"route_norm"}),
                .scaling_factor = config.number({"route_scale"}),
                .correction_bias = true,
                .num_groups = config.positive({"n_group"}),
                .top_groups = config.positive({"topk_group"})};
  spec.moe = std::move(moe);
  for (const char* key :
       {"num_expert_groups", "num_limited_groups", "use_grouped_mm", "load_balance_coeff"})
    config.ignore(key, "said by other keys, or of training alone");
}

void fill_dbrx(HfConfig& config, ModelSpec& spec) {
  spec.num_layers = config.layers({"n_layers"});
  spec.hidden_size = config.width({"d_model"});
  spec.num_heads = config.positive({"n_heads"});
  spec.head_size = spec.hidden_size / spec.num_heads;
  spec.vocab_size = config.positive({"vocab_size"});
  spec.max_positions = config.positive({"max_seq_len"});
  spec.init_std = config.number({"initializer_range"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.norm = Norm::LayerNorm;
  spec.norm_bias = false;
  const HfConfig attention = config.needed("attn_config"), ffn = config.needed("ffn_config");
  spec.num_kv_heads = attention.own_size("kv_n_heads").value_or(1);
  spec.rope_base = attention.own_number("rope_theta").value_or(10000);
  if (attention.own_number("clip_qkv"))
    predict_only(spec, "queries, keys and values that are clipped (attn_config.clip_qkv)");
  spec.moe = MoeSpec{.num_experts = ffn.own_size("moe_num_experts").value_or(4),
                     .top_k = ffn.own_size("moe_top_k").value_or(1),
                     .expert_ffn_size = ffn.own_size("ffn_hidden_size").value_or(3584)};
  spec.moe->router.aux_loss_coefficient = balance_loss(config, spec);
  for (const char* key : {"moe_loss_weight", "moe_jitter_eps", "ffn_act_fn",
                          "moe_normalize_expert_weights", "uniform_expert_assignment"})
    ffn.ignore(key, "of training, or alike in every published dbrx");
  for (const char* key : {"resid_pdrop", "emb_pdrop"})
    config.ignore(key, "0 in every published dbrx");
}

void fill_bailing(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  spec.qkv_bias = config.flag({"use_qkv_bias"});
  spec.attention_out_bias = spec.mlp_bias = config.flag({"use_bias"});
  spec.qk_norm = config.flag({"use_qk_norm"});
  MoeSpec moe =
      read_experts(config, {"num_experts"}, {"num_experts_per_tok"}, {"moe_intermediate_size"});
  const auto shared = config.optional_integer({"moe_shared_expert_intermediate_size"});
  moe.shared_expert_ffn_size =
      shared_width(config, {"num_shared_experts"}, shared.value_or(moe.expert_ffn_size));
  moe.dense_layers = dense_layers(spec, config.integer({"first_k_dense_replace"}), 1);
  moe.router = {.score = config.text({"score_function"}) == "sigmoid" ? RouterScore::Sigmoid
                                                                      : RouterScore::Softmax,
                .normalize_top_k = config.flag({"norm_topk_prob"}),
                .scaling_factor = config.number({"routed_scaling_factor"}),
                .correction_bias = config.flag({"moe_router_enable_expert_bias"}),
                .num_groups = config.positive({"n_group"}),
                .top_groups = config.positive({"topk_group"})};
  spec.moe = std::move(moe);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"});
  if (const int group = config.positive({"layer_group_size"}); group > 1) {
    spec.linear_attention = LinearAttentionSpec{.num_key_heads = spec.num_heads,
                                                .num_value_heads = spec.num_heads,
                                                .key_head_size = spec.head_size,
                                                .value_head_size = spec.head_size,
                                                .conv_size = 0,
                                                .kind = LinearAttentionKind::Simple};
    Mixers mixers = full_every(spec, group, Mixer::Linear);
    for (int i = spec.num_layers / group * group; i < spec.num_layers; ++i)
      mixers[at(i)] = Mixer::Full;
    set_mixers(spec, mixers);
  }
}

/// Chunked layers rotate, full ones do not (Llama 4).
void fill_llama4(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
  spec.qk_norm = config.flag({"use_qk_norm"});
  spec.qk_norm_over = spec.qk_norm ? QkNorm::Unweighted : QkNorm::Head;
  Mixers mixers = uniform(spec, Mixer::Chunked);
  LayerChanges changes(spec.num_layers);
  for (const int layer : layers_without_rope(config, spec)) {
    mixers[at(layer)] = Mixer::Full;
    changes.of(layer).rotates = false;
  }
  config.ignore("layer_types", "said by no_rope_layers");
  set_mixers(spec, mixers);
  if (has_mixer(spec, Mixer::Chunked)) spec.window = config.positive({"attention_chunk_size"});
  changes.store(spec);
  MoeSpec moe =
      read_experts(config, {"num_local_experts"}, {"num_experts_per_tok"}, {"intermediate_size"});
  moe.shared_expert_ffn_size = moe.expert_ffn_size;
  moe.router.score = RouterScore::Sigmoid;
  moe.router.normalize_top_k = false;
  moe.router.aux_loss_coefficient = balance_loss(config, spec);
  require_no_jitter(config);
  const std::vector<int> said = config.integers({"moe_layers"});
  const int step = config.positive({"interleave_moe_layer_step"});
  for (int i = 0; i < spec.num_layers; ++i)
    if (said.empty() ? (i + 1) % step != 0 : std::ranges::find(said, i) == said.end())
      moe.dense_layers.push_back(i);
  if (!moe.dense_layers.empty())
    spec.ffn_size = config.positive({"intermediate_size_mlp"});
  else
    config.ignore("intermediate_size_mlp", "no layer has a dense FFN");
  if (moe.dense_layers.size() < at(spec.num_layers)) spec.moe = std::move(moe);
  predict_only(spec, "experts whose input, not output, is scaled by the router (every llama4)");
  if (config.flag({"attn_temperature_tuning"}))
    predict_only(spec,
                 "queries scaled by position in layers that do not rotate "
                 "(attn_temperature_tuning)");
  for (const char* key : {"floor_scale", "attn_scale", "for_llm_compressor"})
    config.ignore(key, "changes values, not what is computed");
}

/// Layers whose FFN is dense, as Step's files say it: an enumeration, a list of kinds, or how many
/// come first.
std::vector<int> dense_layers_of_step(HfConfig& config, const ModelSpec& spec) {
  std::vector<int> dense;
  if (config.has("moe_layers_enum")) {
    const std::string said = "," + config.text({"moe_layers_enum"}) + ",";
    for (int i = 0; i < spec.num_layers; ++i)
      if (said.find(fmt::format(",{},", i)) == std::string::npos) dense.push_back(i);
    config.ignore("mlp_layer_types", "said by moe_layers_enum");
    return dense;
  }
  const std::vector<std::string> kinds = config.texts({"mlp_layer_types"});
  if (kinds.empty()) return dense_layers(spec, config.integer({"first_k_dense_replace"}), 1);
  for (int i = 0; i < spec.num_layers && at(i) < kinds.size(); ++i)
    if (kinds[at(i)] == "dense") dense.push_back(i);
  return dense;
}

void fill_step(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  spec.num_kv_heads = config.positive({"num_key_value_heads", "num_attention_groups"});
  spec.head_size = config.positive({"head_dim"});
  fill_layer_types(config, spec, uniform(spec, Mixer::Full));
  fill_rope(config, spec);
  spec.norm_epsilon = config.number({"rms_norm_eps"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.activation = config.activation({"hidden_act"});
  set_attention_bias(config, spec);
  spec.qk_norm = true;
  spec.attention_output_gate = config.flag({"use_head_wise_attn_gate"});
  spec.attention_gate = spec.attention_output_gate ? AttentionGate::Head : AttentionGate::Element;
  std::optional<int> heads = config.optional_integer({"num_sliding_attention_heads"});
  std::optional<int> kv_heads;
  if (const auto other = config.object("attention_other_setting")) {
    if (const auto said = other->own_size("num_attention_heads")) heads = said;
    kv_heads = other->own_size("num_attention_groups");
  }
  LayerChanges changes(spec.num_layers);
  for (int layer = 0; layer < spec.num_layers; ++layer)
    if (mixer_of_layer(spec, layer) == Mixer::Sliding) {
      if (heads && *heads != spec.num_heads) changes.of(layer).num_heads = heads;
      if (kv_heads && *kv_heads != spec.num_kv_heads) changes.of(layer).num_kv_heads = kv_heads;
    }
  changes.store(spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  MoeSpec moe = read_experts(config, {"n_routed_experts", "num_experts", "moe_num_experts"},
                             {"num_experts_per_tok", "moe_top_k"}, {"moe_intermediate_size"});
  const std::vector<int> shared = config.integer_or_list({"share_expert_dim", "share_expert_dims"});
  moe.shared_expert_ffn_size = shared.front();
  moe.router = {.score = RouterScore::Sigmoid,
                .scaling_factor = config.number({"moe_router_scaling_factor"}),
                .correction_bias = config.flag({"use_moe_router_bias"})};
  moe.dense_layers = dense_layers_of_step(config, spec);
  spec.moe = std::move(moe);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"});
  for (const char* key : {"n_shared_experts", "scoring_func", "swiglu_limits",
                          "swiglu_limits_shared", "num_local_experts", "query_pre_attn_scalar",
                          "mtp_layer_types", "mtp_mlp_layer_types", "first_k_dense_replace"})
    config.ignore(key, "alike in every published step3p5, or said by another key");
}

/// Sliding layers have heads of their own number and sizes, and sinks (MiMo-V2-Flash).
void fill_mimo_v2(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  const std::vector<int> hybrid = config.integers({"hybrid_layer_pattern"});
  Mixers mixers = full_every(spec, 6, Mixer::Sliding);
  for (int i = 0; i < spec.num_layers && at(i) < hybrid.size(); ++i)
    mixers[at(i)] = hybrid[at(i)] == 1 ? Mixer::Sliding : Mixer::Full;
  fill_layer_types(config, spec, std::move(mixers));
  fill_rope(config, spec);
  spec.norm_epsilon = config.number({"layernorm_epsilon", "rms_norm_eps"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.activation = config.activation({"hidden_act"});
  spec.qkv_bias = config.flag({"attention_bias"});
  spec.value_head_size = config.optional_integer({"v_head_dim"});
  spec.attention_sinks = config.flag({"add_swa_attention_sink_bias"});
  LayerChanges changes(spec.num_layers);
  for (int layer = 0; layer < spec.num_layers; ++layer) {
    if (mixer_of_layer(spec, layer) != Mixer::Sliding) continue;
    LayerVariant& own = changes.of(layer);
    own.num_heads = config.optional_integer({"swa_num_attention_heads"});
    own.num_kv_heads = config.optional_integer({"swa_num_key_value_heads"});
    own.head_size = config.optional_integer({"swa_head_dim"});
    own.value_head_size = config.optional_integer({"swa_v_head_dim"});
    own.rope_base = config.optional_number({"swa_rope_theta"});
  }
  changes.store(spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  MoeSpec moe = read_experts(config, {"n_routed_experts"}, {"num_experts_per_tok"},
                             {"moe_intermediate_size"});
  if (config.optional_integer({"n_shared_experts"}))
    moe.shared_expert_ffn_size = shared_width(config, {"n_shared_experts"}, moe.expert_ffn_size);
  moe.router = {.score = RouterScore::Sigmoid,
                .normalize_top_k = config.flag({"norm_topk_prob"}),
                .scaling_factor = config.optional_number({"routed_scaling_factor"}).value_or(1.0),
                .correction_bias = true,
                .num_groups = config.positive({"n_group"}),
                .top_groups = config.positive({"topk_group"})};
  const std::vector<int> experts = config.integers({"moe_layer_freq"});
  const std::vector<std::string> kinds = config.texts({"mlp_layer_types"});
  for (int i = 0; i < spec.num_layers; ++i) {
    const bool dense = at(i) < experts.size() ? experts[at(i)] == 0
                       : at(i) < kinds.size() ? kinds[at(i)] == "dense"
                                              : i == 0;
    if (dense) moe.dense_layers.push_back(i);
  }
  spec.moe = std::move(moe);
  spec.mtp_layers = config.integer({"num_nextn_predict_layers"});
  predict_only(spec, "sinks of sliding layers alone, and values that are scaled (mimo_v2_flash)");
  for (const char* key :
       {"scoring_func", "topk_method", "attention_value_scale", "add_full_attention_sink_bias",
        "sliding_window_size", "attention_chunk_size", "hybrid_block_size"})
    config.ignore(key, "alike in every published mimo_v2_flash");
}

/// EXAONE-MoE: EXAONE 4's attention, DeepSeek's experts.
void fill_exaone_moe(HfConfig& config, ModelSpec& spec) {
  fill_llama_dense(config, spec);
  spec.qk_norm = true;
  fill_layer_types(config, spec, full_every(spec, 4, Mixer::Sliding));
  LayerChanges changes(spec.num_layers);
  for (int layer = 0; layer < spec.num_layers; ++layer)
    if (mixer_of_layer(spec, layer) == Mixer::Full) changes.of(layer).rotates = false;
  changes.store(spec);
  MoeSpec moe =
      read_experts(config, {"num_experts"}, {"num_experts_per_tok"}, {"moe_intermediate_size"});
  moe.shared_expert_ffn_size = shared_width(config, {"num_shared_experts"}, moe.expert_ffn_size);
  moe.dense_layers = dense_layers(spec, config.integer({"first_k_dense_replace"}), 1);
  moe.router = {.score = RouterScore::Sigmoid,
                .normalize_top_k = config.flag({"norm_topk_prob"}),
                .scaling_factor = config.number({"routed_scaling_factor"}),
                .correction_bias = true,
                .num_groups = config.positive({"n_group"}),
                .top_groups = config.positive({"topk_group"})};
  spec.moe = std::move(moe);
  for (const char* key : {"sliding_window_pattern", "mlp_layer_types"})
    config.ignore(key, "said by other keys");
}

}  // namespace

std::vector<HfFamily> expert_families() {
  return {{"afmoe", fill_afmoe},
          {"bailing_moe", fill_bailing},
          {"dbrx", fill_dbrx},
          {"dots1", fill_dots1},
          {"ernie4_5_moe", fill_ernie_moe},
          {"exaone_moe", fill_exaone_moe},
          {"glm4_moe", fill_glm4_moe},
          {"glm4v_moe_text", fill_glm4_moe},
          {"gpt_oss", fill_gpt_oss},
          {"granitemoe", fill_granite_moe},
          {"granitemoeshared", fill_granite_moe},
          {"hunyuan", fill_hunyuan_moe},
          {"hunyuan_v1_moe", fill_hunyuan_moe},
          {"llama4_text", fill_llama4},
          {"mimo_v2_flash", fill_mimo_v2},
          {"minimax_m2", fill_minimax_m2},
          {"minimax_m3", fill_minimax_m3},
          {"mixtral", fill_mixtral},
          {"flex_olmo", fill_olmoe},
          {"solar_open", fill_glm4_moe},
          {"olmoe", fill_olmoe},
          {"phimoe", fill_phimoe},
          {"step3p5", fill_step},
          {"step3p7", fill_step}};
}

}  // namespace meshplan::models
