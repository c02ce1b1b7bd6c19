// The parts of a layer, in one place: what mixes tokens, what follows it, and how their results
// reach the residual stream. A decoder is a pattern of such layers (model_spec.hpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan::models {

/// What a layer mixes tokens with.
enum class Mixer {
  Full,               // attention to every token up to this one
  Sliding,            // to the last `window` tokens
  Chunked,            // to the tokens up to this one in its chunk of `window` tokens (Llama 4)
  Linear,             // linear attention, of the kind that ModelSpec::linear_attention says
  Mamba,              // a state-space model (ModelSpec::mamba)
  AttentionAndMamba,  // both read the same input, and their results are added (Falcon-H1)
  Convolution,        // a gated short convolution (ModelSpec::convolution; LFM2)
  Projection,         // one linear in its place (neural architecture search; Bercovich et al. 2024)
  None,               // the layer has no mixer
};

/// What follows the mixer.
enum class FeedForward {
  Dense,
  Moe,         // experts (ModelSpec::moe)
  Projection,  // one linear in its place
  None,        // the layer has none
};

/// How the results of mixer and feed-forward part reach the residual stream.
enum class Residual {
  Sequential,        // x += mixer(norm(x)), then x += ffn(norm(x))
  Parallel,          // x += mixer(y) + ffn(y), y = norm(x) (GPT-J, Falcon, Cohere)
  ParallelOwnNorms,  // x += mixer(norm(x)) + ffn(norm'(x)) (GPT-NeoX, Falcon 40B)
};

enum class LinearAttentionKind {
  GatedDelta,  // gated delta rule, one decay a head (Yang et al. 2024, Gated Delta Networks)
  KimiDelta,   // gated delta rule, one decay an element of a key (Kimi Team 2025, Kimi Linear)
  Simple,      // a fixed decay a head (Qin et al. 2024, Lightning Attention-2; MiniMax-01)
};

struct LinearAttentionSpec {
  int num_key_heads = 0;
  int num_value_heads = 0;
  int key_head_size = 0;
  int value_head_size = 0;
  int conv_size = 4;  // taps of the causal depthwise convolution over q, k and v; 0 = none
  LinearAttentionKind kind = LinearAttentionKind::GatedDelta;
  std::optional<int> gate_rank;   // the output's gate is of low rank; absent: one linear
  std::optional<int> decay_rank;  // KimiDelta: that of the decays
  bool operator==(const LinearAttentionSpec&) const = default;
};

/// A selective state-space model: version 2 (Dao & Gu 2024) with heads that share a decay, or
/// version 1 (Gu & Dao 2023), whose every element has its own: its heads have one element each.
struct MambaSpec {
  int version = 2;
  int num_heads = 0;
  int head_size = 0;
  int state_size = 0;
  int num_groups = 1;  // of B and C
  int conv_size = 4;   // taps of the causal depthwise convolution
  bool conv_bias = true;
  bool projection_bias = false;
  bool norm = true;          // version 2: a gated norm before the output projection
  int time_step_rank = 0;    // version 1
  bool inner_norms = false;  // version 1: of the time step, B and C (Jamba)
  int chunk_size = 256;      // tokens between which states are kept
  bool operator==(const MambaSpec&) const = default;

  int inner_size() const { return num_heads * head_size; }
};

/// (b, c, x) = in(x); out(c * conv(b * x)) (Liquid AI 2025, LFM2).
struct ConvolutionSpec {
  int size = 3;
  bool bias = false;
  bool operator==(const ConvolutionSpec&) const = default;
};

/// Attention to those keys alone that a small attention beside it, the indexer, scores highest
/// (DeepSeek-AI 2025, DeepSeek-V3.2, section 2.1). It reads latent attention's compressed queries,
/// or beside plain attention the stream.
struct SparseAttentionSpec {
  int index_heads = 0;
  int index_head_size = 0;
  int top_k = 0;          // keys of a query
  int block = 1;          // that are chosen together (MiniMax-M3)
  bool borrowed = false;  // the choices are those of an earlier layer
  bool operator==(const SparseAttentionSpec&) const = default;
};

/// Attention of DeepSeek-V4: one key, which is also the value, for all heads; a window, and beyond
/// it keys of `ratio` tokens each, of which an indexer chooses where the ratio is small.
struct CompressedAttentionSpec {
  int q_lora_rank = 0;
  int output_groups = 1;  // heads in groups, each with a projection to output_lora_rank
  int output_lora_rank = 0;
  int rope_size = 0;  // rotated elements of a head
  int index_heads = 0;
  int index_head_size = 0;
  int index_top_k = 0;      // compressed keys of a query
  int index_ratio = 4;      // layers with this ratio have an indexer, and keys that overlap
  std::vector<int> ratios;  // of each layer: tokens of a compressed key; 0 = the window alone
  bool operator==(const CompressedAttentionSpec&) const = default;
};

/// The residual stream is `streams` wide; each half layer reads a mix of the streams and writes to
/// all (Zhu et al. 2024, Hyper-Connections; Xie et al. 2025, mHC).
struct HyperConnectionSpec {
  int streams = 1;
  bool operator==(const HyperConnectionSpec&) const = default;
};

/// How a model that was trained on `original_max_positions` rotates longer sequences: which of its
/// rotary frequencies are lowered. Every kind is defined as in Hugging Face transformers
/// (`rope_scaling.hpp` has the formulas).
enum class RopeScalingKind {
  Linear,   // every frequency divided by `factor` (Chen et al. 2023)
  Dynamic,  // a larger base, for sequences beyond the original length alone (NTK-aware)
  Yarn,     // a ramp between kept and divided frequencies; cos and sin scaled (Peng et al. 2023)
  Llama3,   // kept, blended or divided, by wavelength (Llama 3.1)
};

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::Linear;
  double factor = 1.0;                        // at least 1
  std::optional<int> original_max_positions;  // absent: ModelSpec::max_positions
  double low_frequency_factor = 1.0;       // Llama3: wavelengths above original / low are divided
  double high_frequency_factor = 4.0;      // Llama3: those below original / high are kept
  double beta_fast = 32.0;                 // Yarn: dimensions that turn more often are kept,
  double beta_slow = 1.0;                  // those that turn less often are divided
  bool truncate = true;                    // Yarn: the ramp begins and ends at whole dimensions
  std::optional<double> attention_factor;  // Yarn: of cos and sin; absent: as its paper says
  std::optional<double> mscale;            // Yarn: both given, their ratio replaces the paper's
  std::optional<double> mscale_all_dim;    // factor; with MLA it also scales the scores
  bool operator==(const RopeScaling&) const = default;
};

/// Multi-head latent attention (DeepSeek-V2, section 2.1). A query and key head has
/// qk_nope_head_size + qk_rope_head_size elements, which is also ModelSpec::head_size.
struct MlaSpec {
  std::optional<int> q_lora_rank;  // absent: queries are not compressed
  int kv_lora_rank = 0;
  int qk_nope_head_size = 0;
  int qk_rope_head_size = 0;
  int v_head_size = 0;
  double norm_epsilon = 1e-6;  // of the norms inside; DeepSeek's is fixed, whatever the others' is
  bool operator==(const MlaSpec&) const = default;
};

enum class RouterScore {
  Softmax,
  Sigmoid,
  SqrtSoftplus,  // DeepSeek-V4
};

/// How a MoE layer chooses experts and weighs their outputs.
struct RouterSpec {
  RouterScore score = RouterScore::Softmax;
  bool normalize_top_k = true;   // the chosen weights are scaled to sum to 1
  double scaling_factor = 1.0;   // of the combined output
  bool bias = false;             // added to the logits (gpt-oss)
  bool correction_bias = false;  // added for the choice only, moved by load instead of by gradient
                                 // (DeepSeek-V3, section 2.1.2)
  double correction_bias_rate = 0.001;  // by which it moves in a step (Wang et al. 2024, algorithm
                                        // 1; DeepSeek-V3, section 4.2)
  int num_groups = 1;  // experts in equal groups; only `top_groups` of them are eligible: those
                       // with the largest score, or with a correction bias sum of two scores
  int top_groups = 1;  // (DeepSeek-V2, section 2.2.2; DeepSeek-V3, section 2.1.2)
  double aux_loss_coefficient = 0.0;  // load balancing loss of each layer and sequence
                                      // (DeepSeek-V3, equations 17 to 20; Switch Transformer,
                                      // section 2.2)
  double z_loss_coefficient = 0.0;    // of log(sum(exp(logits)))^2 (Zoph et al. 2022, equation 5)
  bool operator==(const RouterSpec&) const = default;
};

struct MoeSpec {
  int num_experts = 0;
  int top_k = 0;
  int expert_ffn_size = 0;
  int shared_expert_ffn_size = 0;   // all shared experts together; 0 = none
  bool shared_expert_gate = false;  // the shared output is scaled by sigmoid(x . w) (Qwen)
  bool expert_bias = false;
  double capacity_factor =
      0.0;  // an expert takes at most this share of a sequence's tokens times
            // top_k / num_experts, the first ones; 0 = all (GShard, section 3.2)
  std::vector<int> dense_layers;  // layers that keep the dense FFN, ascending; all others are MoE
  RouterSpec router;
  std::optional<int> latent_size;  // experts read and write vectors of this size, to which and from
                                   // which one linear each projects a token (NVIDIA 2025, Nemotron
                                   // 3, latent MoE); absent: of hidden_size
  bool latent_norm = false;        // a norm behind the experts' sum (Kimi-K3)
  bool operator==(const MoeSpec&) const = default;
};

/// A vector of each token for each layer, from a table of its own, which the layer adds behind its
/// halves (Gemma 3n).
struct LayerInputSpec {
  int size = 0;
  int vocab_size = 0;
  bool operator==(const LayerInputSpec&) const = default;
};

/// What some layers have otherwise than the model says; absent: nothing else.
struct LayerVariant {
  std::vector<int> layers;  // ascending
  std::optional<int> num_heads;
  std::optional<int> num_kv_heads;
  std::optional<int> head_size;
  std::optional<int> value_head_size;
  std::optional<int> ffn_size;
  std::optional<int> window;
  std::optional<double> rope_base;
  std::optional<int> rope_size;
  std::optional<bool> rotates;          // false: without positions (Kazemnejad et al. 2023, NoPE)
  std::optional<bool> keys_are_values;  // one projection makes both (Gemma 4)
  std::optional<bool> borrows_keys;     // keys and values of an earlier layer (Gemma 3n)
  std::optional<bool> sees_all;         // no indexer chooses its keys
  std::optional<bool> borrows_choices;  // keys that the indexer of an earlier layer chose (GLM-5.2)
  bool operator==(const LayerVariant&) const = default;
};

}  // namespace meshplan::models
