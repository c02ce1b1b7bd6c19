// Appends operations to a LayerGraph, creating their output tensors and parameters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/graph.hpp"

namespace meshplan::models {

inline Dim fixed(std::int64_t count) {
  return {count, Symbol::One, 1};
}
inline Dim tokens() {
  return {1, Symbol::Tokens, 1};
}
inline Dim sequences() {
  return {1, Symbol::Sequences, 1};
}
inline Dim routed_tokens() {
  return {1, Symbol::RoutedTokens, 1};
}

/// A dense or grouped linear: its weight is "<weight>.weight", its bias "<weight>.bias".
struct LinearShape {
  std::string name;
  std::string weight;
  std::int64_t out = 0;
  Split split = Split::None;
  bool bias = false;
  std::vector<std::int64_t> sections = {};  // of the output features
  std::int64_t head_size = 0;               // of the sections; 0 = not heads
  Init init = Init::Normal;
  int num_experts = 0;    // > 0: a GroupedLinear
  bool detached = false;  // no gradient passes through it
};

/// Every function appends one operation and returns its (first) output, which bears its name.
class LayerBuilder {
 public:
  LayerBuilder(std::string name, const ModelSpec& spec) : spec_(spec) {
    graph_.name = std::move(name);
  }

  const ModelSpec& spec() const { return spec_; }
  LayerGraph take() { return std::move(graph_); }

  TensorId tensor(std::string name, TensorClass tensor_class, std::vector<Dim> shape,
                  std::vector<std::int64_t> sections = {});
  TensorId parameter(std::string name, std::vector<Dim> shape, Init init,
                     std::vector<std::int64_t> sections = {});
  /// The activation (T, D) that the layer reads.
  TensorId input();
  void set_output(TensorId id) { graph_.output = id; }
  void mark_untrained(TensorId id) { at(id).trained = false; }

  /// An operation without outputs yet; the reference lives until the next operation is appended.
  Op& op(OpKind kind, std::string name, std::vector<TensorId> inputs);
  /// Appends an activation named like the operation to its outputs.
  TensorId output(Op& op, std::vector<Dim> shape, std::vector<std::int64_t> sections = {},
                  std::int64_t head_size = 0);
  TensorId statistic(Op& op, std::string_view suffix, std::vector<Dim> shape);
  /// Declares how tensor parallelism cuts a tensor.
  void set_sections(TensorId id, std::vector<std::int64_t> sections, std::int64_t head_size);

  /// With the adapters that the spec has for it.
  TensorId linear(const LinearShape& shape, TensorId x);
  /// The spec's norm over the last dimension of x. @param epsilon  absent: the spec's, too
  TensorId norm(const std::string& name, const std::string& weight, TensorId x,
                std::optional<double> epsilon = {});
  TensorId add(const std::string& name, TensorId a, TensorId b);
  TensorId scale(const std::string& name, TensorId x, double factor);

  const Dim& rows(TensorId id) { return at(id).shape.front(); }
  std::int64_t width(TensorId id) { return at(id).shape.back().count; }

 private:
  TensorId product(const LinearShape& shape, TensorId x);
  /// B A x, scaled.
  TensorId adapter(const LinearShape& shape, TensorId x);
  TensorId with_adapters(const LinearShape& shape, TensorId x, TensorId y);

  Tensor& at(TensorId id) { return graph_.tensors[static_cast<std::size_t>(id)]; }

  friend class ModuleScope;

  const ModelSpec& spec_;
  LayerGraph graph_;
  ModuleSet modules_;  // of the operations that are appended now
};

/// Operations that are appended while it lives are of a module, besides those around it.
class ModuleScope {
 public:
  ModuleScope(LayerBuilder& layer, Module module) : layer_(layer), before_(layer.modules_) {
    layer.modules_.add(module);
  }
  ~ModuleScope() { layer_.modules_ = before_; }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  LayerBuilder& layer_;
  ModuleSet before_;
};

/// Elements of a token in the residual stream, or in all of them.
inline std::int64_t stream_width(const ModelSpec& spec) {
  return std::int64_t{spec.hidden_size} *
         (spec.hyper_connections ? spec.hyper_connections->streams : 1);
}

LayerGraph layer_graph(const ModelSpec& spec, Mixer mixer, FeedForward ffn, std::string name);
/// Both halves of a layer with their norms and residual sums.
TensorId append_layer(LayerBuilder& layer, Mixer mixer, FeedForward ffn, TensorId x);
LayerGraph prediction_graph(const ModelSpec& model);
LayerGraph ending_graph(const ModelSpec& spec, const LayerGraph& head,
                        const std::vector<LayerGraph>& modules);
VisionGraph vision_graph(const VisionSpec& vision);

// The two halves of a layer: x is the normed input (T, D), the result (T, D) is what is added to
// the residual stream.
TensorId append_attention(LayerBuilder& layer, Mixer mixer, TensorId x);
TensorId append_latent_attention(LayerBuilder& layer, TensorId x);
TensorId append_compressed_attention(LayerBuilder& layer, TensorId x);
TensorId append_linear_attention(LayerBuilder& layer, TensorId x);
TensorId append_mamba(LayerBuilder& layer, TensorId x);
TensorId append_convolution(LayerBuilder& layer, TensorId x);
TensorId append_mlp(LayerBuilder& layer, TensorId x);
TensorId append_moe(LayerBuilder& layer, TensorId x);
/// One linear, from and to the stream.
TensorId append_projection(LayerBuilder& layer, const std::string& weight, TensorId x);

// Parts of mixers.
/// How a Rope turns heads: all of them, or of latent attention and where the spec says so a part.
void set_rope(const ModelSpec& spec, Mixer mixer, OpAttributes& attributes);
TensorId append_output_projection(LayerBuilder& layer, TensorId heads, const char* weight);
/// Which keys each query attends to (DeepSeek-V3.2): choices (T, top-k).
/// @param low  compressed queries (T, rank)
TensorId append_indexer(LayerBuilder& layer, TensorId low, TensorId x);
/// Products of low rank: x to `rank` to `out`, or at once where there is no rank.
TensorId append_low_rank(LayerBuilder& layer, const std::string& name, const std::string& weight,
                         std::optional<int> rank, std::int64_t out, TensorId x);
/// The attention's output times the sigmoid of a projection of x.
TensorId append_output_gate(LayerBuilder& layer, TensorId heads, TensorId x);

}  // namespace meshplan::models
