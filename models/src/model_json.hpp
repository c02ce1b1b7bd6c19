// The JSON form of ModelSpec: one declaration for reading, writing, bounds and schema.
#pragma once

#include <array>
#include <utility>

#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "models/model_spec.hpp"

namespace meshplan {

template <>
struct EnumNames<models::Norm> {
  static constexpr std::array<std::pair<models::Norm, std::string_view>, 2> value{
      {{models::Norm::RmsNorm, "rms_norm"}, {models::Norm::LayerNorm, "layer_norm"}}};
};

template <>
struct EnumNames<models::NormPlacement> {
  static constexpr std::array<std::pair<models::NormPlacement, std::string_view>, 3> value{
      {{models::NormPlacement::Pre, "pre"},
       {models::NormPlacement::PrePost, "pre_post"},
       {models::NormPlacement::Post, "post"}}};
};

template <>
struct EnumNames<models::Mlp> {
  static constexpr std::array<std::pair<models::Mlp, std::string_view>, 2> value{
      {{models::Mlp::Gated, "gated"}, {models::Mlp::Plain, "plain"}}};
};

template <>
struct EnumNames<models::ActivationKind> {
  static constexpr std::array<std::pair<models::ActivationKind, std::string_view>, 7> value{
      {{models::ActivationKind::Silu, "silu"},
       {models::ActivationKind::Gelu, "gelu"},
       {models::ActivationKind::GeluTanh, "gelu_tanh"},
       {models::ActivationKind::SquaredRelu, "squared_relu"},
       {models::ActivationKind::Relu, "relu"},
       {models::ActivationKind::Tanh, "tanh"},
       {models::ActivationKind::ClampedSilu, "clamped_silu"}}};
};

template <>
struct EnumNames<models::Positions> {
  static constexpr std::array<std::pair<models::Positions, std::string_view>, 3> value{
      {{models::Positions::Rope, "rope"},
       {models::Positions::Learned, "learned"},
       {models::Positions::None, "none"}}};
};

template <>
struct EnumNames<models::LayerAttention> {
  static constexpr std::array<std::pair<models::LayerAttention, std::string_view>, 3> value{
      {{models::LayerAttention::Full, "full"},
       {models::LayerAttention::Sliding, "sliding"},
       {models::LayerAttention::Linear, "linear"}}};
};

template <>
struct EnumNames<models::RopeScalingKind> {
  static constexpr std::array<std::pair<models::RopeScalingKind, std::string_view>, 4> value{
      {{models::RopeScalingKind::Linear, "linear"},
       {models::RopeScalingKind::Dynamic, "dynamic"},
       {models::RopeScalingKind::Yarn, "yarn"},
       {models::RopeScalingKind::Llama3, "llama3"}}};
};

template <>
struct EnumNames<models::RouterScore> {
  static constexpr std::array<std::pair<models::RouterScore, std::string_view>, 2> value{
      {{models::RouterScore::Softmax, "softmax"}, {models::RouterScore::Sigmoid, "sigmoid"}}};
};

namespace models {

constexpr int kModelSchemaVersion = 1;
constexpr double kLargestFactor = 1e6;  // of a factor or coefficient: larger ones are mistakes
constexpr double kLargestRopeBase = 1e15;
constexpr double kSmallestPositive = 1e-20;  // bounds are inclusive; "greater than zero"

template <class Visitor>
void fields(Visitor& v, RouterSpec& r) {
  v.optional("score", r.score, "what turns router logits into weights");
  v.optional("normalize_top_k", r.normalize_top_k, "scale the chosen weights to sum to 1");
  v.optional("scaling_factor", r.scaling_factor, "factor of the experts' combined output",
             between(kSmallestPositive, kLargestFactor));
  v.optional("bias", r.bias, "the router's logits have a bias");
  v.optional("correction_bias", r.correction_bias,
             "a bias that balances load: used for the choice only, not trained by gradient");
  v.optional("correction_bias_rate", r.correction_bias_rate,
             "by which the correction bias moves in a step", between(0, kLargestFactor));
  v.optional("num_groups", r.num_groups, "groups of experts", between(1, limits::kWidth));
  v.optional("top_groups", r.top_groups, "groups that a token may choose from",
             between(1, limits::kWidth));
  v.optional("aux_loss_coefficient", r.aux_loss_coefficient, "weight of the load balancing loss",
             between(0, kLargestFactor));
  v.optional("z_loss_coefficient", r.z_loss_coefficient,
             "weight of the squared log-sum-exp of the logits", between(0, kLargestFactor));
}

template <class Visitor>
void fields(Visitor& v, MoeSpec& m) {
  v.required("num_experts", m.num_experts, "routed experts of a layer", between(1, limits::kWidth));
  v.required("top_k", m.top_k, "experts per token", between(1, limits::kWidth));
  v.required("expert_ffn_size", m.expert_ffn_size, "width of one expert",
             between(1, limits::kWidth));
  v.optional("shared_expert_ffn_size", m.shared_expert_ffn_size,
             "width of all shared experts together; 0 = none", between(0, limits::kWidth));
  v.optional("shared_expert_gate", m.shared_expert_gate,
             "the shared output is scaled by a learned gate");
  v.optional("expert_bias", m.expert_bias, "the experts' projections have biases");
  v.optional("capacity_factor", m.capacity_factor,
             "tokens of a sequence that an expert takes, times num_experts / (top_k * tokens); 0 = "
             "all",
             between(0, kLargestFactor));
  v.optional("dense_layers", m.dense_layers, "layers with a dense FFN, ascending", at_least(0));
  v.optional("router", m.router, "how experts are chosen and weighed");
}

template <class Visitor>
void fields(Visitor& v, MlaSpec& m) {
  v.optional("q_lora_rank", m.q_lora_rank, "rank of the queries; null = not compressed",
             between(1, limits::kWidth));
  v.required("kv_lora_rank", m.kv_lora_rank, "rank of keys and values", between(1, limits::kWidth));
  v.required("qk_nope_head_size", m.qk_nope_head_size, "elements of a head without rotation",
             between(1, limits::kWidth));
  v.required("qk_rope_head_size", m.qk_rope_head_size, "rotated elements of a head",
             between(1, limits::kWidth));
  v.required("v_head_size", m.v_head_size, "elements of a value head", between(1, limits::kWidth));
  v.optional("norm_epsilon", m.norm_epsilon, "added to the variance in the norms of the low ranks",
             between(kSmallestPositive, 1));
}

template <class Visitor>
void fields(Visitor& v, LinearAttentionSpec& l) {
  v.required("num_key_heads", l.num_key_heads, "query and key heads", between(1, limits::kWidth));
  v.required("num_value_heads", l.num_value_heads, "value heads", between(1, limits::kWidth));
  v.required("key_head_size", l.key_head_size, "elements of a query or key head",
             between(1, limits::kWidth));
  v.required("value_head_size", l.value_head_size, "elements of a value head",
             between(1, limits::kWidth));
  v.optional("conv_size", l.conv_size, "taps of the causal convolution",
             between(1, limits::kWidth));
}

template <class Visitor>
void fields(Visitor& v, AdapterSpec& a) {
  v.required("rank", a.rank, "of A and B", between(1, limits::kWidth));
  v.optional("alpha", a.alpha, "their product is scaled by alpha / rank; 0 = by 1",
             between(0, kLargestFactor));
  v.required("modules", a.modules,
             "linears that have adapters: qkv_proj, o_proj, gate_up_proj, down_proj; q_proj, ... = "
             "a part of a fused one with an A of its own");
}

template <class Visitor>
void fields(Visitor& v, RopeScaling& r) {
  v.required("type", r.kind, "which frequencies are lowered");
  v.required("factor", r.factor, "longer by this than what was trained",
             between(1, kLargestFactor));
  v.optional("original_max_positions", r.original_max_positions,
             "sequence length before scaling; null = max_positions", between(1, limits::kTokens));
  v.optional("low_frequency_factor", r.low_frequency_factor,
             "llama3: wavelengths above original_max_positions / this are divided by factor",
             between(kSmallestPositive, kLargestFactor));
  v.optional("high_frequency_factor", r.high_frequency_factor,
             "llama3: wavelengths below original_max_positions / this are kept",
             between(kSmallestPositive, kLargestFactor));
  v.optional("beta_fast", r.beta_fast, "yarn: rotations above which a frequency is kept",
             between(kSmallestPositive, kLargestFactor));
  v.optional("beta_slow", r.beta_slow, "yarn: rotations below which a frequency is divided",
             between(kSmallestPositive, kLargestFactor));
  v.optional("truncate", r.truncate, "yarn: the ramp begins and ends at whole dimensions");
  v.optional("attention_factor", r.attention_factor,
             "yarn: factor of cos and sin; null = 0.1 ln(factor) + 1",
             between(kSmallestPositive, kLargestFactor));
  v.optional("mscale", r.mscale, "yarn: with mscale_all_dim, another factor of cos and sin",
             between(0, kLargestFactor));
  v.optional("mscale_all_dim", r.mscale_all_dim, "yarn: with mla, scales the scores, too",
             between(0, kLargestFactor));
}

template <class Visitor>
void attention_fields(Visitor& v, ModelSpec& s) {
  v.optional("positions", s.positions, "how positions enter");
  v.optional("rope_base", s.rope_base, "base of the rotary frequencies",
             between(1, kLargestRopeBase));
  v.optional("local_rope_base", s.local_rope_base,
             "rope_base of sliding layers, if different; they are then without rope_scaling",
             between(1, kLargestRopeBase));
  v.optional("rope_size", s.rope_size, "rotated elements of a head; null = all",
             between(2, limits::kWidth));
  v.optional("rope_scaling", s.rope_scaling, "frequencies lowered for longer sequences");
  v.optional("qkv_bias", s.qkv_bias, "query, key and value projections have biases");
  v.optional("attention_out_bias", s.attention_out_bias, "the output projection has a bias");
  v.optional("causal", s.causal, "false: an encoder with a padding mask");
  v.optional("attention_scale", s.attention_scale, "factor of the scores; null = 1/sqrt(head_size)",
             between(kSmallestPositive, kLargestFactor));
  v.optional("attention_softcap", s.attention_softcap, "tanh cap of the scores",
             between(kSmallestPositive, kLargestFactor));
  v.optional("attention_sinks", s.attention_sinks, "one learned logit per head in each softmax");
  v.optional("attention_output_gate", s.attention_output_gate,
             "attention output is gated before its projection");
  v.optional("layer_pattern", s.layer_pattern,
             "attention of layer i is pattern[i % length]; empty = all full");
  v.optional("window", s.window, "tokens that a sliding layer sees", between(0, limits::kTokens));
  v.optional("mla", s.mla, "multi-head latent attention");
  v.optional("linear_attention", s.linear_attention, "gated delta net of the linear layers");
}

template <class Visitor>
void fields(Visitor& v, ModelSpec& s) {
  int version = kModelSchemaVersion;
  v.required("schema_version", version, "version of this file format",
             between(kModelSchemaVersion, kModelSchemaVersion));
  v.required("name", s.name, "what the model is called", of_name());
  v.required("num_layers", s.num_layers, "transformer layers", between(1, limits::kLayers));
  v.required("hidden_size", s.hidden_size, "width of the residual stream",
             between(1, limits::kWidth));
  v.required("ffn_size", s.ffn_size, "width of the dense FFN; 0 where every layer is MoE",
             between(0, limits::kWidth));
  v.required("num_heads", s.num_heads, "query heads", between(1, limits::kWidth));
  v.required("num_kv_heads", s.num_kv_heads, "key and value heads", between(1, limits::kWidth));
  v.required("head_size", s.head_size, "elements of a query or key head",
             between(1, limits::kWidth));
  v.required("vocab_size", s.vocab_size, "tokens of the vocabulary, before padding",
             between(1, limits::kVocabulary));
  v.required("max_positions", s.max_positions, "longest sequence", between(1, limits::kTokens));
  v.optional("norm", s.norm, "kind of all norms");
  v.optional("norm_placement", s.norm_placement, "norms before, around or after each half layer");
  v.optional("norm_epsilon", s.norm_epsilon, "added to the variance",
             between(kSmallestPositive, 1));
  v.optional("qk_norm", s.qk_norm, "RMS norm of every query and key head");
  v.optional("mlp", s.mlp, "gated or plain feed-forward");
  v.optional("activation", s.activation, "non-linearity of the feed-forward");
  v.optional("mlp_bias", s.mlp_bias, "the dense FFN's projections have biases");
  attention_fields(v, s);
  v.optional("tied_embeddings", s.tied_embeddings, "the output projection is the embedding");
  v.optional("embedding_scale", s.embedding_scale, "factor of the token embeddings",
             between(kSmallestPositive, kLargestFactor));
  v.optional("logit_softcap", s.logit_softcap, "tanh cap of the logits",
             between(kSmallestPositive, kLargestFactor));
  v.optional("token_types", s.token_types, "rows of the token type embedding",
             between(0, limits::kWidth));
  v.optional("embedding_norm", s.embedding_norm, "a norm right after the embeddings");
  v.optional("num_classes", s.num_classes, "classes of a sequence classifier; 0 = language model",
             between(0, limits::kWidth));
  v.optional("pooler", s.pooler, "linear and tanh before the classifier");
  v.optional("moe", s.moe, "mixture of experts");
  v.optional("mtp_layers", s.mtp_layers, "multi-token prediction modules",
             between(0, limits::kPredictionModules));
  v.stated("adapters", s.adapters, "low-rank adapters beside linears (LoRA)");
  v.optional("init_std", s.init_std, "standard deviation of initial weights",
             between(kSmallestPositive, kLargestFactor));
  v.optional("dropout", s.dropout, "largest dropout rate; training has none", between(0, 1));
}

}  // namespace models
}  // namespace meshplan
