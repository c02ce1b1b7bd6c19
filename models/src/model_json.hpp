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
  static constexpr std::array<std::pair<models::NormPlacement, std::string_view>, 4> value{
      {{models::NormPlacement::Pre, "pre"},
       {models::NormPlacement::PrePost, "pre_post"},
       {models::NormPlacement::Post, "post"},
       {models::NormPlacement::Output, "output"}}};
};

template <>
struct EnumNames<models::Mlp> {
  static constexpr std::array<std::pair<models::Mlp, std::string_view>, 2> value{
      {{models::Mlp::Gated, "gated"}, {models::Mlp::Plain, "plain"}}};
};

template <>
struct EnumNames<models::ActivationKind> {
  static constexpr std::array<std::pair<models::ActivationKind, std::string_view>, 9> value{
      {{models::ActivationKind::Silu, "silu"},
       {models::ActivationKind::Gelu, "gelu"},
       {models::ActivationKind::GeluTanh, "gelu_tanh"},
       {models::ActivationKind::SquaredRelu, "squared_relu"},
       {models::ActivationKind::Relu, "relu"},
       {models::ActivationKind::Tanh, "tanh"},
       {models::ActivationKind::Sigmoid, "sigmoid"},
       {models::ActivationKind::None, "none"},
       {models::ActivationKind::ClampedSilu, "clamped_silu"}}};
};

template <>
struct EnumNames<models::Positions> {
  static constexpr std::array<std::pair<models::Positions, std::string_view>, 4> value{
      {{models::Positions::Rope, "rope"},
       {models::Positions::Learned, "learned"},
       {models::Positions::None, "none"},
       {models::Positions::Alibi, "alibi"}}};
};

template <>
struct EnumNames<models::QkNorm> {
  static constexpr std::array<std::pair<models::QkNorm, std::string_view>, 4> value{
      {{models::QkNorm::Head, "head"},
       {models::QkNorm::Projection, "projection"},
       {models::QkNorm::EachHead, "each_head"},
       {models::QkNorm::Unweighted, "unweighted"}}};
};

template <>
struct EnumNames<models::AttentionGate> {
  static constexpr std::array<std::pair<models::AttentionGate, std::string_view>, 2> value{
      {{models::AttentionGate::Element, "element"}, {models::AttentionGate::Head, "head"}}};
};

template <>
struct EnumNames<models::Mixer> {
  static constexpr std::array<std::pair<models::Mixer, std::string_view>, 9> value{
      {{models::Mixer::Full, "full"},
       {models::Mixer::Sliding, "sliding"},
       {models::Mixer::Chunked, "chunked"},
       {models::Mixer::Linear, "linear"},
       {models::Mixer::Mamba, "mamba"},
       {models::Mixer::AttentionAndMamba, "attention_and_mamba"},
       {models::Mixer::Convolution, "convolution"},
       {models::Mixer::Projection, "projection"},
       {models::Mixer::None, "none"}}};
};

template <>
struct EnumNames<models::FeedForward> {
  static constexpr std::array<std::pair<models::FeedForward, std::string_view>, 4> value{
      {{models::FeedForward::Dense, "dense"},
       {models::FeedForward::Moe, "moe"},
       {models::FeedForward::Projection, "projection"},
       {models::FeedForward::None, "none"}}};
};

template <>
struct EnumNames<models::Residual> {
  static constexpr std::array<std::pair<models::Residual, std::string_view>, 3> value{
      {{models::Residual::Sequential, "sequential"},
       {models::Residual::Parallel, "parallel"},
       {models::Residual::ParallelOwnNorms, "parallel_own_norms"}}};
};

template <>
struct EnumNames<models::LinearAttentionKind> {
  static constexpr std::array<std::pair<models::LinearAttentionKind, std::string_view>, 3> value{
      {{models::LinearAttentionKind::GatedDelta, "gated_delta"},
       {models::LinearAttentionKind::KimiDelta, "kimi_delta"},
       {models::LinearAttentionKind::Simple, "simple"}}};
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
  static constexpr std::array<std::pair<models::RouterScore, std::string_view>, 3> value{
      {{models::RouterScore::Softmax, "softmax"},
       {models::RouterScore::Sigmoid, "sigmoid"},
       {models::RouterScore::SqrtSoftplus, "sqrt_softplus"}}};
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
  v.stated("latent_size", m.latent_size,
           "experts read and write vectors of this size; null = of hidden_size",
           between(1, limits::kWidth));
  v.unusual("latent_norm", m.latent_norm, false, "a norm behind the sum of latent experts");
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
  v.optional("conv_size", l.conv_size, "taps of the causal convolution; 0 = none",
             between(0, limits::kWidth));
  v.unusual("kind", l.kind, LinearAttentionKind::GatedDelta, "how the state changes");
  v.stated("gate_rank", l.gate_rank, "rank of the output's gate; null = one linear",
           between(1, limits::kWidth));
  v.stated("decay_rank", l.decay_rank, "kimi_delta: rank of the decays; null = one linear",
           between(1, limits::kWidth));
}

template <class Visitor>
void fields(Visitor& v, MambaSpec& m) {
  v.optional("version", m.version, "2: heads share a decay; 1: every element has its own",
             between(1, 2));
  v.required("num_heads", m.num_heads, "heads; of version 1 its elements",
             between(1, limits::kWidth));
  v.required("head_size", m.head_size, "elements of a head; of version 1 one",
             between(1, limits::kWidth));
  v.required("state_size", m.state_size, "state of an element", between(1, limits::kWidth));
  v.optional("num_groups", m.num_groups, "groups of heads that share B and C",
             between(1, limits::kWidth));
  v.optional("conv_size", m.conv_size, "taps of the causal convolution",
             between(1, limits::kWidth));
  v.optional("conv_bias", m.conv_bias, "the convolution has a bias");
  v.optional("projection_bias", m.projection_bias, "the projections have biases");
  v.optional("norm", m.norm, "version 2: a gated norm before the output projection");
  v.optional("time_step_rank", m.time_step_rank, "version 1: rank of the time step",
             between(0, limits::kWidth));
  v.optional("inner_norms", m.inner_norms, "version 1: norms of the time step, B and C");
  v.optional("chunk_size", m.chunk_size, "tokens between which states are kept",
             between(1, limits::kTokens));
}

template <class Visitor>
void fields(Visitor& v, ConvolutionSpec& c) {
  v.required("size", c.size, "taps of the causal convolution", between(1, limits::kWidth));
  v.optional("bias", c.bias, "projections and convolution have biases");
}

template <class Visitor>
void fields(Visitor& v, SparseAttentionSpec& a) {
  v.required("index_heads", a.index_heads, "query heads of the indexer",
             between(1, limits::kWidth));
  v.required("index_head_size", a.index_head_size, "elements of such a head",
             between(1, limits::kWidth));
  v.required("top_k", a.top_k, "keys that a query attends to", between(1, limits::kTokens));
  v.unusual("block", a.block, 1, "keys that are chosen together", between(1, limits::kTokens));
  v.unusual("borrowed", a.borrowed, false, "the choices are those of an earlier layer");
}

template <class Visitor>
void fields(Visitor& v, CompressedAttentionSpec& a) {
  v.required("q_lora_rank", a.q_lora_rank, "rank of the queries", between(1, limits::kWidth));
  v.required("output_groups", a.output_groups, "groups of heads that are projected together",
             between(1, limits::kWidth));
  v.required("output_lora_rank", a.output_lora_rank, "to which a group is projected",
             between(1, limits::kWidth));
  v.required("rope_size", a.rope_size, "rotated elements of a head", between(2, limits::kWidth));
  v.required("index_heads", a.index_heads, "query heads of the indexer",
             between(1, limits::kWidth));
  v.required("index_head_size", a.index_head_size, "elements of such a head",
             between(1, limits::kWidth));
  v.required("index_top_k", a.index_top_k, "compressed keys that a query attends to",
             between(1, limits::kTokens));
  v.optional("index_ratio", a.index_ratio, "layers of this ratio have an indexer",
             between(1, limits::kTokens));
  v.required("ratios", a.ratios, "of each layer: tokens of a compressed key; 0 = the window alone",
             between(0, limits::kTokens));
}

template <class Visitor>
void fields(Visitor& v, HyperConnectionSpec& h) {
  v.required("streams", h.streams, "residual streams", between(1, 64));
}

template <class Visitor>
void fields(Visitor& v, LayerInputSpec& l) {
  v.required("size", l.size, "elements of a layer's vector", between(1, limits::kWidth));
  v.required("vocab_size", l.vocab_size, "rows of the table", between(1, limits::kVocabulary));
}

template <class Visitor>
void fields(Visitor& v, LayerVariant& l) {
  v.required("layers", l.layers, "that have it, ascending", between(0, limits::kLayers));
  const Bounds width = between(1, limits::kWidth);
  v.stated("num_heads", l.num_heads, "query heads", width);
  v.stated("num_kv_heads", l.num_kv_heads, "key and value heads", width);
  v.stated("head_size", l.head_size, "elements of a query or key head", width);
  v.stated("value_head_size", l.value_head_size, "elements of a value head", width);
  v.stated("ffn_size", l.ffn_size, "width of the dense FFN", width);
  v.stated("window", l.window, "tokens that the layer sees", between(1, limits::kTokens));
  v.stated("rope_base", l.rope_base, "base of the rotary frequencies",
           between(1, kLargestRopeBase));
  v.stated("rope_size", l.rope_size, "rotated elements of a head", between(2, limits::kWidth));
  v.stated("rotates", l.rotates, "false: the layer knows no positions");
  v.stated("keys_are_values", l.keys_are_values, "one projection makes both");
  v.stated("borrows_keys", l.borrows_keys, "keys and values are those of an earlier layer");
  v.stated("sees_all", l.sees_all, "no indexer chooses its keys");
  v.stated("borrows_choices", l.borrows_choices, "the indexer's choices are an earlier layer's");
}

template <class Visitor>
void fields(Visitor& v, VisionSpec& s) {
  const Bounds width = between(1, limits::kWidth);
  v.required("num_layers", s.num_layers, "layers of the tower", between(1, limits::kLayers));
  v.required("hidden_size", s.hidden_size, "width of its stream", width);
  v.required("ffn_size", s.ffn_size, "width of its MLP", width);
  v.required("num_heads", s.num_heads, "heads of its attention", width);
  v.required("head_size", s.head_size, "elements of a head", width);
  v.required("patch_elements", s.patch_elements, "numbers of a patch", width);
  v.optional("positions", s.positions, "rows of a table of positions", between(0, limits::kTokens));
  v.optional("gated", s.gated, "its MLP is gated");
  v.optional("biases", s.biases, "its linears have biases");
  v.optional("rms_norm", s.rms_norm, "its norms are RMS norms");
  v.optional("four_norms", s.four_norms, "norms around each half of its layers");
  v.optional("qk_norm", s.qk_norm, "its queries and keys are normed");
  v.required("projector", s.projector, "widths from merged patches to the decoder", width);
  v.optional("projector_biases", s.projector_biases, "the projector's linears have biases");
  v.optional("projectors", s.projectors, "alike, each for a layer of the tower", between(1, 1024));
  v.required("image_patches", s.image_patches, "of an image", between(1, limits::kTokens));
  v.optional("images_per_sequence", s.images_per_sequence, "in training, on average",
             between(0, kLargestFactor));
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
  v.unusual("attention_gate", s.attention_gate, AttentionGate::Element, "what that gate scales");
  v.stated("value_head_size", s.value_head_size, "elements of a value head; null = head_size",
           between(1, limits::kWidth));
  v.unusual("keys_are_values", s.keys_are_values, false, "one projection makes keys and values");
  v.unusual("borrows_keys", s.borrows_keys, false, "keys and values are those of a layer before");
  v.optional("layer_pattern", s.layer_pattern,
             "layer i mixes tokens by pattern[i % length]; empty = all full");
  v.unusual("ffn_pattern", s.ffn_pattern, {},
            "what follows in layer i is pattern[i % length]; empty = moe where there are experts");
  v.unusual("layer_variants", s.layer_variants, {}, "what some layers have otherwise");
  v.optional("window", s.window, "tokens that a sliding layer sees", between(0, limits::kTokens));
  v.optional("mla", s.mla, "multi-head latent attention");
  v.stated("sparse_attention", s.sparse_attention, "attention to keys that an indexer chooses");
  v.stated("compressed_attention", s.compressed_attention, "attention to compressed keys");
  v.optional("linear_attention", s.linear_attention, "what the linear layers are");
  v.stated("mamba", s.mamba, "what the mamba layers are");
  v.stated("convolution", s.convolution, "what the convolution layers are");
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
  v.unusual("norm_bias", s.norm_bias, true, "layer norms have a bias");
  v.unusual("residual", s.residual, Residual::Sequential, "how half layers reach the stream");
  v.stated("residual_scale", s.residual_scale, "factor of what a half layer adds to the stream",
           between(kSmallestPositive, kLargestFactor));
  v.stated("low_rank_residual", s.low_rank_residual, "rank of a product beside the mixer",
           between(1, limits::kWidth));
  v.stated("layer_inputs", s.layer_inputs, "a vector of each token for each layer");
  v.stated("hyper_connections", s.hyper_connections, "several residual streams");
  v.optional("qk_norm", s.qk_norm, "RMS norm of every query and key head");
  v.unusual("qk_norm_over", s.qk_norm_over, QkNorm::Head, "what is normed together");
  v.optional("mlp", s.mlp, "gated or plain feed-forward");
  v.optional("activation", s.activation, "non-linearity of the feed-forward");
  v.optional("mlp_bias", s.mlp_bias, "the dense FFN's projections have biases");
  attention_fields(v, s);
  v.optional("tied_embeddings", s.tied_embeddings, "the output projection is the embedding");
  v.optional("embedding_scale", s.embedding_scale, "factor of the token embeddings",
             between(kSmallestPositive, kLargestFactor));
  v.optional("logit_softcap", s.logit_softcap, "tanh cap of the logits",
             between(kSmallestPositive, kLargestFactor));
  v.stated("logit_scale", s.logit_scale, "factor of the logits",
           between(kSmallestPositive, kLargestFactor));
  v.unusual("head_bias", s.head_bias, false, "the output projection has a bias");
  v.optional("token_types", s.token_types, "rows of the token type embedding",
             between(0, limits::kWidth));
  v.optional("embedding_norm", s.embedding_norm, "a norm right after the embeddings");
  v.optional("num_classes", s.num_classes, "classes of a sequence classifier; 0 = language model",
             between(0, limits::kWidth));
  v.optional("pooler", s.pooler, "linear and tanh before the classifier");
  v.optional("moe", s.moe, "mixture of experts");
  v.optional("mtp_layers", s.mtp_layers, "multi-token prediction modules",
             between(0, limits::kPredictionModules));
  v.unusual("mtp_loss_coefficient", s.mtp_loss_coefficient, 0.1,
            "weight of the mean of the prediction modules' losses in the loss",
            between(kSmallestPositive, kLargestFactor));
  v.stated("vision", s.vision, "a tower beside the decoder that reads images");
  v.stated("adapters", s.adapters, "low-rank adapters beside linears (LoRA)");
  v.optional("init_std", s.init_std, "standard deviation of initial weights",
             between(kSmallestPositive, kLargestFactor));
  v.optional("dropout", s.dropout, "largest dropout rate; training has none", between(0, 1));
  v.unusual("only_predicted", s.only_predicted, {},
            "parts of the function that nothing else here says: the model is planned without them "
            "and never run");
}

}  // namespace models
}  // namespace meshplan
