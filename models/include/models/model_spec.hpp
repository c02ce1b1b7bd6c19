// A transformer language model as data: everything that its graph, parameters and cost depend on.
// One struct covers the decoder families that meshplan imports and a BERT-like encoder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan::models {

enum class Norm { RmsNorm, LayerNorm };  // LayerNorm has a bias

/// Where the norms of a layer stand.
enum class NormPlacement {
  Pre,      // x + f(norm(x)); a final norm before the head (GPT-2, Llama)
  PrePost,  // x + norm(f(norm(x))): four norms a layer and a final one (Gemma 2 and 3)
  Post,     // norm(x + f(x)); no final norm (BERT)
};

enum class Mlp {
  Gated,  // down(act(gate(x)) * up(x))
  Plain,  // down(act(up(x)))
};

enum class ActivationKind {
  Silu,
  Gelu,
  GeluTanh,
  SquaredRelu,
  Relu,
  Tanh,         // BERT's pooler
  ClampedSilu,  // gpt-oss: gate and up clamped to 7, gate * sigmoid(1.702 gate) * (up + 1)
};
/// As in model files: "gelu_tanh".
std::string_view name_of_activation(ActivationKind kind);

enum class Positions { Rope, Learned, None };

/// What a layer mixes tokens with.
enum class LayerAttention {
  Full,
  Sliding,  // sees the last `window` tokens
  Linear,   // gated delta net (`linear_attention`)
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

enum class RouterScore { Softmax, Sigmoid };

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
  bool operator==(const MoeSpec&) const = default;
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

/// Gated delta net (Yang et al. 2024, as in Qwen3-Next).
struct LinearAttentionSpec {
  int num_key_heads = 0;
  int num_value_heads = 0;
  int key_head_size = 0;
  int value_head_size = 0;
  int conv_size = 4;  // taps of the causal depthwise convolution over q, k and v
  bool operator==(const LinearAttentionSpec&) const = default;
};

/// Low-rank adapters beside linears (Hu et al. 2021, LoRA, section 4.1): y = W x + alpha / rank *
/// B A x, with A of (rank, in) and B of (out, rank), which begins at zero. What is trained is the
/// plan's to say (Plan::frozen).
struct AdapterSpec {
  int rank = 0;
  double alpha = 0;  // 0 = rank: a factor of 1
  // Linears that have them, by the last part of their weight's name: "qkv_proj", "o_proj"; or the
  // parts of a fused one, "q_proj", "gate_proj", each with an A of its own (counted, never
  // lowered).
  std::vector<std::string> modules;
  bool operator==(const AdapterSpec&) const = default;

  double scale() const { return alpha > 0 ? alpha / rank : 1; }
};

/// The defaults are those of a Llama; `validate` states what must hold between the fields.
struct ModelSpec {
  std::string name;
  int num_layers = 0;
  int hidden_size = 0;
  int ffn_size = 0;  // of dense layers; 0 where every layer is MoE
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_size = 0;
  int vocab_size = 0;
  int max_positions = 0;

  Norm norm = Norm::RmsNorm;
  NormPlacement norm_placement = NormPlacement::Pre;
  double norm_epsilon = 1e-5;
  bool qk_norm = false;  // RMS norm of every query and key head, one weight each per layer

  Mlp mlp = Mlp::Gated;  // of dense layers, experts and shared experts
  ActivationKind activation = ActivationKind::Silu;

  Positions positions = Positions::Rope;
  double rope_base = 10000.0;
  std::optional<double> local_rope_base;  // of sliding layers, which are then not scaled (Gemma 3);
                                          // absent: they rotate like the others
  std::optional<int> rope_size;           // rotated elements of a head; absent: all
  std::optional<RopeScaling> rope_scaling;

  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;

  bool causal = true;                       // false: an encoder, which needs num_classes
  std::optional<double> attention_scale;    // absent: 1 / sqrt(head_size), with MLA and Yarn
                                            // times the square of its mscale (DeepSeek-V3)
  std::optional<double> attention_softcap;  // scores become cap * tanh(scores / cap)
  std::optional<double> logit_softcap;
  bool attention_sinks = false;        // one learned logit per head joins each softmax
  bool attention_output_gate = false;  // o * sigmoid(gate(x)) before the output projection

  /// Repeated over the layers: layer i uses pattern[i % size]. Empty: every layer is Full.
  std::vector<LayerAttention> layer_pattern;
  int window = 0;  // tokens a Sliding layer sees, itself included

  bool tied_embeddings = false;
  double embedding_scale = 1.0;
  int token_types = 0;          // rows of a token type embedding (BERT); 0 = none
  bool embedding_norm = false;  // a norm right after the embeddings (BERT)

  int num_classes = 0;  // > 0: classification of a sequence by its first token, no language head
  bool pooler = false;  // linear and tanh between the first token and the classifier (BERT)

  std::optional<MoeSpec> moe;
  std::optional<MlaSpec> mla;
  std::optional<LinearAttentionSpec> linear_attention;
  int mtp_layers = 0;  // multi-token prediction modules (DeepSeek-V3, section 2.2)
  std::optional<AdapterSpec> adapters;

  double init_std = 0.02;
  double dropout = 0.0;  // the largest of the model's dropout rates; described, never run

  bool operator==(const ModelSpec&) const = default;
};

LayerAttention attention_of_layer(const ModelSpec& spec, int layer);
bool is_moe_layer(const ModelSpec& spec, int layer);

/// @param file  where the spec came from, for messages
/// @throws ConfigError naming the fields, their values, the rule and the nearest valid choice
void validate(const ModelSpec& spec, std::string_view file);

/// Reads meshplan's own form (schema_version 1) and validates it.
/// @param assumed  if given, collects "key = value" of every optional key that was absent
/// @throws ConfigError naming file, key, value and rule
ModelSpec parse_model_spec(std::string_view text, const std::string& file,
                           std::vector<std::string>* assumed = nullptr);

/// The resolved file: every key, indented; parse_model_spec of it gives an equal spec.
std::string to_json(const ModelSpec& spec);

/// JSON Schema (draft 2020-12) of meshplan's own form.
std::string model_json_schema();

/// Names of the models that are compiled in, sorted.
std::vector<std::string> preset_names();

/// @throws ConfigError for an unknown name, with the nearest known one
ModelSpec load_preset(std::string_view name);

}  // namespace meshplan::models
