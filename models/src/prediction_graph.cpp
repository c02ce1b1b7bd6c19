// Multi-token prediction: modules behind the main model, each of which predicts one token further
// ahead, from the hidden state of the one before it and the embedding of the token that this one
// predicted.
#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "core/error.hpp"
#include "core/index.hpp"
#include "layer_builder.hpp"

namespace meshplan::models {
namespace {

constexpr const char* kEmbeddingWeight = "embed_tokens.weight";

/// Puts the modules behind the head, in one graph whose parameters exist once.
class Ending {
 public:
  Ending(const ModelSpec& spec, const LayerGraph& head)
      : spec_(spec), head_(head), graph_(head), hidden_(head.input.value()) {
    const auto norm = std::ranges::find(head_.ops, "final_norm", &Op::name);
    if (norm == head_.ops.end()) return;
    hidden_ = norm->outputs.front();
    end_of_norm_ = static_cast<std::size_t>(norm - head_.ops.begin()) + 1;
  }

  /// The module's inputs, what it adds, and what the head does with its output.
  void append(const LayerGraph& module) {
    ++number_;
    std::map<TensorId, TensorId> of_module{{module.input.value(), hidden_}};
    const auto next = std::ranges::find(module.tensors, "next_embeddings", &Tensor::name);
    of_module[static_cast<TensorId>(next - module.tensors.begin())] = append_embedding();
    append(module, 0, of_module);
    hidden_ = of_module.at(module.output.value());
    std::map<TensorId, TensorId> of_head{
        {end_of_norm_ > 0 ? head_.ops[end_of_norm_ - 1].outputs[0] : head_.input.value(), hidden_}};
    for (std::size_t id = 0; id < head_.tensors.size(); ++id)
      if (head_.tensors[id].tensor_class == TensorClass::Parameter)
        of_head[static_cast<TensorId>(id)] = static_cast<TensorId>(id);
    append(head_, end_of_norm_, of_head);
  }

  LayerGraph take() { return std::move(graph_); }

 private:
  std::string named(const std::string& name) const {
    return fmt::format("mtp.{}.{}", number_ - 1, name);
  }

  TensorId add(Tensor tensor) {
    graph_.tensors.push_back(std::move(tensor));
    return static_cast<TensorId>(graph_.tensors.size()) - 1;
  }

  /// Of the tokens `number_` further on, by the main model's table and scale.
  TensorId append_embedding() {
    const Dim hidden = fixed(spec_.hidden_size);
    const TensorId ids = add({.name = named("ids"),
                              .tensor_class = TensorClass::Index,
                              .shape = {tokens()},
                              .sections = {}});
    const Tensor output{.name = named("embedding"), .shape = {tokens(), hidden}, .sections = {}};
    Op lookup{.kind = OpKind::Embedding,
              .name = output.name,
              .inputs = {ids},
              .parameters = {embedding_weight()},
              .outputs = {add(output)},
              .split = Split::Vocab};
    lookup.attributes.prediction = number_;
    graph_.ops.push_back(lookup);
    if (spec_.embedding_scale == 1.0) return lookup.outputs.front();
    Tensor scaled = output;
    scaled.name = named("embedding_scale");
    Op scale{.kind = OpKind::Scale,
             .name = scaled.name,
             .inputs = lookup.outputs,
             .parameters = {},
             .outputs = {add(scaled)}};
    scale.attributes.scale = spec_.embedding_scale;
    graph_.ops.push_back(scale);
    return scale.outputs.front();
  }

  /// A tied head has it, and the first module adds it to any other.
  TensorId embedding_weight() {
    const auto known = std::ranges::find(graph_.tensors, kEmbeddingWeight, &Tensor::name);
    if (known != graph_.tensors.end()) return static_cast<TensorId>(known - graph_.tensors.begin());
    return add({.name = kEmbeddingWeight,
                .tensor_class = TensorClass::Parameter,
                .shape = {fixed(spec_.vocab_size), fixed(spec_.hidden_size)},
                .sections = {},
                .init = Init::Normal,
                .weight_decay = true});
  }

  /// Operations of `from`, from number `first` on. @param here  what its tensors are in this graph
  void append(const LayerGraph& from, std::size_t first, std::map<TensorId, TensorId>& here) {
    const auto translate = [&](std::vector<TensorId>& ids) {
      for (TensorId& id : ids) {
        const auto known = here.find(id);
        if (known == here.end()) {
          Tensor copy = from.tensors[at(id)];
          copy.name = named(copy.name);
          here[id] = add(std::move(copy));
        }
        id = here.at(id);
      }
    };
    for (std::size_t i = first; i < from.ops.size(); ++i) {
      Op op = from.ops[i];
      op.name = named(op.name);
      translate(op.inputs);
      translate(op.parameters);
      translate(op.outputs);
      op.attributes.prediction = number_;
      if (op.kind == OpKind::CrossEntropy)
        op.attributes.scale = spec_.mtp_loss_coefficient / spec_.mtp_layers;
      graph_.ops.push_back(std::move(op));
    }
  }

  const ModelSpec& spec_;
  const LayerGraph& head_;
  LayerGraph graph_;
  TensorId hidden_;
  std::size_t end_of_norm_ = 0;  // operations of the head up to its norm
  int number_ = 0;               // of the module, from 1
};

}  // namespace

/// One module without what it shares: both inputs normed, concatenated and projected, then a layer
/// and a norm,
///   h' = eh_proj [enorm(Emb(t_{i+k})); hnorm(h^{k-1}_i)],  h^k = shared_head.norm(layer(h')).
/// Names and the order of the two halves are those of DeepSeek-V3's weights; the paper has the
/// halves the other way round, which is the same function of a permuted weight.
/// Source: DeepSeek-V3 (arXiv 2412.19437), section 2.2.
LayerGraph prediction_graph(const ModelSpec& model) {
  const int like = layer_of_prediction(model);
  ModelSpec spec = spec_of_layer(model, like);
  spec.hyper_connections.reset();
  if (spec.compressed_attention) spec.compressed_attention->ratios = {0};
  LayerBuilder layer("mtp", spec);
  const TensorId hidden = layer.input();
  const TensorId next =
      layer.tensor("next_embeddings", TensorClass::Activation, {tokens(), fixed(spec.hidden_size)});
  const TensorId a = layer.norm("mtp_embedding_norm", "enorm", next);
  const TensorId b = layer.norm("mtp_hidden_norm", "hnorm", hidden);
  const TensorId both = layer.output(layer.op(OpKind::Concat, "mtp_concat", {a, b}),
                                     {tokens(), fixed(2 * std::int64_t{spec.hidden_size})});
  const TensorId projected =
      layer.linear({.name = "mtp_projection", .weight = "eh_proj", .out = spec.hidden_size}, both);
  const TensorId y =
      append_layer(layer, mixer_of_layer(model, like), ffn_of_prediction(model), projected);
  layer.set_output(layer.norm("mtp_final_norm", "shared_head.norm", y));
  return layer.take();
}

/// The head, then D modules. h^0 is the main model's hidden state behind its final norm: the paper
/// says "the representation given by the main model", and DeepSeek's weights are served (vLLM,
/// SGLang) and Megatron-Core trains (multi_token_prediction.py) with the normed one, of modules as
/// of the model. Logits of module k are made by the head's own projection, and its loss is the
/// cross entropy of t_{i+k+1}; the step's loss is the main one plus
///   mtp_loss_coefficient / D * sum over k of L_k        (equation 25 of DeepSeek-V3).
/// Operations and parameters of module k are named "mtp.{k-1}.<name>".
LayerGraph ending_graph(const ModelSpec& spec, const LayerGraph& head,
                        const std::vector<LayerGraph>& modules) {
  Ending ending(spec, head);
  for (const LayerGraph& module : modules) ending.append(module);
  return ending.take();
}

}  // namespace meshplan::models
