// The unsharded forward graph of a model: what is computed, on which tensors, with which
// parameters. Everything else is derived from it: parameter totals, FLOPs, and (in program/)
// sharding, backward, recompute, memory and cost.
//
// Tensors that no operation writes and that are no parameters are the step's inputs, known by name:
// "ids", "token_types", "targets" (T; targets of a classifier: one per sequence), "lengths" (tokens
// that are not padding, one per sequence). Prediction module k reads the ids and targets of k
// tokens further on.
//
// Shape letters: T tokens of a micro-batch (sequences * S), S sequence length, D hidden, H query
// heads, K key/value heads, E head size, F feed-forward width, V vocabulary, X experts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/model_spec.hpp"
#include "models/module.hpp"

namespace meshplan::models {

/// What a dimension counts when the model alone does not fix it.
enum class Symbol {
  One,              // a plain number
  Tokens,           // tokens of one micro-batch
  Sequences,        // sequences of one micro-batch
  RoutedTokens,     // token copies that the router sends to the experts held here
  ForwardedTokens,  // token copies that a rank sends to nodes, one for each, or forwards in its own
};

/// count * symbol / divisor. Sharding multiplies the divisor, so a local size stays an expression.
struct Dim {
  std::int64_t count = 1;
  Symbol symbol = Symbol::One;
  std::int64_t divisor = 1;
  bool operator==(const Dim&) const = default;
};

/// Values of the symbols; `routed_tokens` and `forwarded_tokens` are per rank, after dispatch.
struct SymbolValues {
  std::int64_t tokens = 0;
  std::int64_t sequences = 0;
  std::int64_t routed_tokens = 0;
  std::int64_t forwarded_tokens = 0;
};

/// @throws InvariantError if the divisor does not divide
std::int64_t evaluate(const Dim& dim, const SymbolValues& values);

enum class TensorClass {
  Activation,  // in the compute dtype
  Statistic,   // fp32, small: inverse norms, log-sum-exp, router probabilities
  Index,       // int32: token ids, targets, expert choices
  Parameter,
};

/// Scaled: std / sqrt(2 * layers), for the projections that write to the residual stream (GPT-2,
/// section 2.3).
enum class Init { Normal, ScaledNormal, Ones, Zeros };

/// One value of the graph. `sections` splits the dimension that tensor parallelism shards (the last
/// of an activation, the first of a column-parallel weight) into parts that are sharded one by one:
/// a fused QKV weight (q + 2 kv rows) has sections {q, kv, kv}, a fused gate-up {F, F}. Empty = one
/// part. Where `head_size` is not 0, sections are rows of heads of this size: a section with fewer
/// heads than ranks is not cut; each of its heads is held by several ranks.
struct Tensor {
  std::string name;
  TensorClass tensor_class = TensorClass::Activation;
  std::vector<Dim> shape;
  std::vector<std::int64_t> sections;
  std::int64_t head_size = 0;
  Init init = Init::Normal;   // parameters only
  bool weight_decay = false;  // parameters only: matrices yes, norms and biases no
  bool trained = true;        // parameters only; false: moved by a rule, not by its gradient
  bool operator==(const Tensor&) const = default;
};

/// What a model is written in. Inputs, parameters ("weight") and outputs of every kind, in their
/// order.
enum class OpKind {
  Embedding,          // in: ids (T); weight (V, D); out: (T, D)
  PositionEmbedding,  // in: x (T, D); weight (P, D); out: x + weight[position]
  Scale,              // in: x; out: x * attributes.scale
  RmsNorm,            // in: x (T, D); weight (D); out: y (T, D), inv_rms (T)
  LayerNorm,          // in: x (T, D); weight, bias (D); out: y (T, D), mean (T), inv_std (T)
  // in: qkv (T, (H + 2K) E); weights q_norm (E), k_norm (E); out: qkv',
  // inv_rms (T, H + K), stored head by head
  HeadRmsNorm,
  Linear,  // in: x (T, in); weight (out, in) [, bias (out)]; out: x weight^T + bias
  // in: qkv (T, (H + 2K) E); out: same, q and k rotated; works in place.
  // MLA: in: q (T, H E), k_rope (T, Er); out: both, of q the last Er elements of a head rotated
  Rope,
  // in: qkv (T, (H + 2K) E) [, lengths (Sequences)]; weight [sinks (H)];
  // out: o (T, H E), lse (T, H)
  Attention,
  // MLA. in: q (T, H E), kv (T, H (En + Ev)), k_rope (T, Er); out: o (T, H Ev), lse (T, H)
  LatentAttention,
  // in: index queries (T, Hi Ei), index keys (T, Ei), head weights (T, Hi); out: choices (T,
  // top-k), which an Attention or a LatentAttention reads as its last input
  SelectKeys,
  // in: x (T, D); weights of the keys' and their scores' projection, positions, norm; out: keys
  // that stand for `compression` tokens each (T, E). Counted, never lowered
  CompressKeys,
  // in: heads (T, F); weight (groups * rank, F / groups): each group of heads by its own rows; out:
  // (T, groups * rank). Counted, never lowered
  GroupedOutput,
  // causal and depthwise. in: x (T, C); weight (C, taps) [, bias (C)]; out: act(conv(x))
  ShortConvolution,
  // in: qkv (T, 2 key + value) [, beta and decay]; weights of the decay; out: o (T, value heads *
  // value size). Counted, never lowered
  LinearAttention,
  // Mamba. in: x, B and C (T, I + 2 G N) and dt (T, H); weights of the decay; out: (T, I).
  // Counted, never lowered
  StateSpace,
  // in: x (T, F), gate (T, F); weight (group or F); out: norm of each group of x, times act(gate);
  // or the norm of x times act(gate); inv_rms (T, groups)
  GatedNorm,
  Multiply,  // in: a, b (T, F); out: a * b
  // Hyper-connections. in: streams (T, n D) [, mix] [, y]; out: what a half layer reads (T, D), or
  // the streams with what it writes. Counted, never lowered
  StreamMix,
  SigmoidGate,      // in: x (T, F), gate (T, F, heads or 1); out: x * sigmoid(gate)
  GatedActivation,  // in: gate_up (T, 2 F), sections {F, F}; out: act(gate) * up (T, F)
  Activation,       // in: x (T, F); out: act(x)
  Add,              // in: a, b (T, D); out: a + b
  // in: x (T, out), then (T, size) of some of its sections each; out: x with these added to their
  // columns. Of adapters apart; counted, never lowered
  AddSections,
  Slice,   // in: x (T, a + b), sections {a, b}; out: (T, a), (T, b); views
  Concat,  // in: a, b (T, D); out: (T, 2 D)
  // in: x (T, D); weight (X, D) [, bias (X)] [, correction bias (X)];
  // out: probabilities (T, top-k), choices (T, top-k), scores of all experts (T, X)
  Router,
  Dispatch,  // in: x (T, D), choices; out: rows sorted by expert (RoutedTokens, D)
  // in: x (RoutedTokens, in); weight (X, out, in) [, bias (X, out)]; out: (RoutedTokens, out)
  GroupedLinear,
  Combine,  // in: rows (RoutedTokens, D), probabilities, choices; out: (T, D)
  Pool,     // encoder: first token of each sequence; in: (T, D); out: (Sequences, D)
  // in: logits (T, V), targets (T); out: per-token loss (T), lse (T); classifier: Sequences for T
  CrossEntropy,
};

/// How tensor parallelism splits the weight of a Linear, GroupedLinear or Embedding.
enum class Split {
  None,    // replicated
  Column,  // output features (sections split one by one); the output is sharded on its last dim
  Row,     // input features; the output is a partial sum
  Vocab,   // rows of the vocabulary (padded to 128 * tp): embedding and head
};

/// Attributes of an operation; each kind reads those that its line above implies.
struct OpAttributes {
  int heads = 0;
  int kv_heads = 0;
  int head_size = 0;
  int value_head_size = 0;  // equals head_size except in MLA
  bool causal = true;
  int window = 0;  // sliding window in tokens; 0 = full
  int chunk = 0;   // tokens of a chunk: beyond which attention sees nothing, or between which
                   // a recurrence keeps its states; 0 = none
  int selected_keys = 0;  // of a query, chosen by an indexer; 0 = all
  int compression = 0;    // tokens of a compressed key; 0 = none
  bool alibi = false;     // scores fall with the distance
  double scale = 1.0;     // of Scale, of the attention scores, and of a loss
  double softcap = 0.0;   // of attention scores and of logits: cap * tanh(x / cap); 0 = none
  double epsilon = 0.0;
  double rope_base = 0.0;
  int rope_size = 0;    // rotated part of each head
  int rope_offset = 0;  // elements of a head before the rotated ones; 0 except in MLA
  std::optional<RopeScaling> rope_scaling;  // with its original_max_positions
  ActivationKind activation = ActivationKind::Silu;
  int num_experts = 0;
  int top_k = 0;
  RouterSpec router;
  std::optional<LinearAttentionSpec> linear_attention;
  std::optional<MambaSpec> mamba;
  bool detached = false;    // of Linear: what it reads is a constant to it, so that no gradient of
                            // what it makes passes on (an indexer's projections)
  int norm_group = 0;       // of GatedNorm: elements that are normed together
  bool gate_first = false;  // of GatedNorm: before the norm
  int prediction = 0;       // the prediction module that it is of, from 1; 0 = none
  bool operator==(const OpAttributes&) const = default;
};

using TensorId = int;

struct Op {
  OpKind kind = OpKind::Add;
  std::string name;  // inside the layer: "qkv", "attention", "mlp_down"
  std::vector<TensorId> inputs;
  std::vector<TensorId> parameters;
  std::vector<TensorId> outputs;
  Split split = Split::None;
  OpAttributes attributes;
  ModuleSet modules;  // that it is of
  bool operator==(const Op&) const = default;
};

/// A layer as a list of operations in execution order. `input` and `output` are activations (T, D);
/// the embedding has no input (it reads the step's ids), the head no output (it ends in the loss).
struct LayerGraph {
  std::string name;  // "embedding", "dense", "moe", "head", ...
  std::vector<Tensor> tensors;
  std::vector<Op> ops;
  std::optional<TensorId> input;
  std::optional<TensorId> output;
  bool operator==(const LayerGraph&) const = default;
};

/// A vision tower: patches, then `layers` times the block, then `projectors` times the projector,
/// whose rows are tokens of the decoder. The symbol Tokens is patches, of the projector tokens.
struct VisionGraph {
  LayerGraph patches;
  LayerGraph block;
  LayerGraph projector;
  int layers = 0;
  int projectors = 1;
  int image_patches = 0;
  int patches_per_token = 1;
  double images_per_sequence = 1;
  bool operator==(const VisionGraph&) const = default;
};

/// The whole model: embedding, then layers[layer_kind[i]] for every i, then head (final norm,
/// output projection, loss). Identical layers share one graph.
struct ModelGraph {
  LayerGraph embedding;
  std::vector<LayerGraph> kinds;
  std::vector<int> layer_kind;
  LayerGraph head;
  std::vector<LayerGraph> mtp;  // multi-token prediction modules, without what they share: they
                                // read the hidden state and the next tokens' embeddings
  LayerGraph ending;            // what runs behind the layers: the head, then the modules with the
                                // embedding and the output projection that they share with it
  std::optional<VisionGraph> vision;  // beside the decoder; counted, never lowered
  bool tied_embeddings = false;       // the head's output projection is the embedding's weight
  bool operator==(const ModelGraph&) const = default;
};

/// Builds the graph of any supported spec, which it validates. Layer kinds are named by what they
/// mix tokens with and by their FFN, and by a number where others of the name came before: "dense",
/// "moe", "sliding_dense", "linear_moe", "dense_2". Parameter names
/// follow Hugging Face's, without the "model.layers.N." prefix, except that fused weights have our
/// own: "self_attn.qkv_proj.weight", "mlp.gate_up_proj.weight". With tied embeddings the head's
/// weight has the embedding's name.
ModelGraph build_graph(const ModelSpec& spec);

/// A tower's blocks as an encoder's layers.
ModelSpec spec_of_tower(const VisionSpec& vision);

}  // namespace meshplan::models
