// A transformer language model as data: everything that its graph, parameters and cost depend on.
// One struct covers the decoder families that meshplan imports and a BERT-like encoder.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/layer_parts.hpp"
#include "models/vision.hpp"

namespace meshplan::models {

enum class Norm { RmsNorm, LayerNorm };

/// Where the norms of a layer stand.
enum class NormPlacement {
  Pre,      // x + f(norm(x)); a final norm before the head (GPT-2, Llama)
  PrePost,  // x + norm(f(norm(x))): four norms a layer and a final one (Gemma 2 and 3)
  Post,     // norm(x + f(x)); no final norm (BERT)
  Output,   // x + norm(f(x)), and a final norm (OLMo 2)
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
  Sigmoid,      // of gates alone
  None,         // of convolutions alone: the values as they are
  ClampedSilu,  // gpt-oss: gate and up clamped to 7, gate * sigmoid(1.702 gate) * (up + 1)
};
/// As in model files: "gelu_tanh".
std::string_view name_of_activation(ActivationKind kind);
std::string_view name_of_mixer(Mixer mixer);

enum class Positions {
  Rope,
  Learned,
  None,
  Alibi,  // scores fall with the distance (Press et al. 2021)
};

/// Which elements share an RMS norm of queries and keys, and its weights.
enum class QkNorm {
  Head,        // each head is normed; one weight for all query and one for all key heads
  Projection,  // all query heads at once, and all key heads
  EachHead,    // each head is normed, with weights of its own
  Unweighted,  // each head is normed, without weights
};

/// What scales the attention's output before its projection.
enum class AttentionGate {
  Element,  // o * sigmoid(gate(x)), one gate an element
  Head,     // one gate a head
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
  bool norm_bias = true;  // of LayerNorm
  Residual residual = Residual::Sequential;
  std::optional<double> residual_scale;  // of what a half layer adds to the stream (Granite)
  std::optional<int> low_rank_residual;  // rank of a product beside the mixer (LAuReL; Gemma 3n)
  std::optional<HyperConnectionSpec> hyper_connections;
  std::optional<LayerInputSpec> layer_inputs;
  bool qk_norm = false;
  QkNorm qk_norm_over = QkNorm::Head;

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
  std::optional<double> logit_scale;  // of the logits (Cohere, Granite)
  bool head_bias = false;             // of the output projection
  bool attention_sinks = false;       // one learned logit per head joins each softmax
  bool attention_output_gate = false;
  AttentionGate attention_gate = AttentionGate::Element;  // where there is one
  std::optional<int> value_head_size;                     // absent: head_size; with MLA its own
  bool keys_are_values = false;                           // one projection makes both (Gemma 4)
  bool borrows_keys = false;                              // of an earlier layer (Gemma 3n)

  /// Repeated over the layers: layer i mixes by pattern[i % size]. Empty: every layer is Full.
  std::vector<Mixer> layer_pattern;
  /// The same of what follows. Empty: experts where `moe` is given and the layer is none of its
  /// dense_layers, else Dense.
  std::vector<FeedForward> ffn_pattern;
  std::vector<LayerVariant> layer_variants;  // a layer is in one of them at most
  int window = 0;  // tokens a Sliding layer sees, itself included; of a Chunked layer's chunk

  bool tied_embeddings = false;
  double embedding_scale = 1.0;
  int token_types = 0;          // rows of a token type embedding (BERT); 0 = none
  bool embedding_norm = false;  // a norm right after the embeddings (BERT)

  int num_classes = 0;  // > 0: classification of a sequence by its first token, no language head
  bool pooler = false;  // linear and tanh between the first token and the classifier (BERT)

  std::optional<MoeSpec> moe;
  std::optional<MlaSpec> mla;
  std::optional<SparseAttentionSpec> sparse_attention;
  std::optional<CompressedAttentionSpec> compressed_attention;
  std::optional<LinearAttentionSpec> linear_attention;
  std::optional<MambaSpec> mamba;
  std::optional<ConvolutionSpec> convolution;
  int mtp_layers = 0;                 // multi-token prediction modules (DeepSeek-V3, section 2.2)
  double mtp_loss_coefficient = 0.1;  // of the mean of their losses, beside the model's own
  std::optional<VisionSpec> vision;   // a tower beside the decoder
  std::optional<AdapterSpec> adapters;

  double init_std = 0.02;
  double dropout = 0.0;  // the largest of the model's dropout rates; described, never run

  /// Parts of the function that nothing above says, a line each: such a model is counted and
  /// planned without them, and never run.
  std::vector<std::string> only_predicted;

  bool operator==(const ModelSpec&) const = default;
};

Mixer mixer_of_layer(const ModelSpec& spec, int layer);
FeedForward ffn_of_layer(const ModelSpec& spec, int layer);
bool is_moe_layer(const ModelSpec& spec, int layer);

/// The layer that those of prediction modules are like: with full attention and experts where the
/// model has any.
int layer_of_prediction(const ModelSpec& spec);
/// What follows its mixer. A model whose layers are halves has both in a module (NVIDIA 2025,
/// Nemotron 3).
FeedForward ffn_of_prediction(const ModelSpec& spec);
/// Are there prediction modules, and do they have experts?
bool predicts_with_experts(const ModelSpec& spec);

/// Is the embedding's weight read behind the layers, too: by a tied head or prediction modules?
bool ending_reads_embedding(const ModelSpec& spec);

/// The variant that lists the layer, or none.
const LayerVariant* variant_of_layer(const ModelSpec& spec, int layer);
/// The model as this layer has it: with what its variant says in the places of the model's own.
ModelSpec spec_of_layer(const ModelSpec& spec, int layer);
/// Have both layers the same parts?
bool of_one_kind(const ModelSpec& spec, int a, int b);
/// The first layer of every kind that the model has, ascending.
std::vector<int> layers_of_each_kind(const ModelSpec& spec);

/// Those that its layers have, each once.
std::vector<Mixer> mixers_of(const ModelSpec& spec);
/// Has any layer this mixer?
bool has_mixer(const ModelSpec& spec, Mixer mixer);

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
