#include "layer_builder.hpp"

namespace meshplan::models {
namespace {

/// Operation and parameter names of an MLP, and its width; `num_experts` > 0 makes it grouped.
struct MlpShape {
  std::string op_prefix;  // before "up" and "down"
  std::string gate_up;    // name of the fused projection
  std::string activation;
  std::string weights;
  std::int64_t ffn_size = 0;
  bool bias = false;
  int num_experts = 0;
  std::int64_t out = 0;
};

TensorId append_up_and_activation(LayerBuilder& layer, const MlpShape& shape, TensorId x) {
  const ModelSpec& spec = layer.spec();
  const bool gated = spec.mlp == Mlp::Gated;
  const std::int64_t f = shape.ffn_size;
  const TensorId up = layer.linear(
      {.name = gated ? shape.gate_up : shape.op_prefix + "up",
       .weight = shape.weights + (gated ? "gate_up_proj" : "up_proj"),
       .out = gated ? 2 * f : f,
       .split = Split::Column,
       .bias = shape.bias,
       .sections = gated ? std::vector<std::int64_t>{f, f} : std::vector<std::int64_t>{},
       .num_experts = shape.num_experts},
      x);
  const Dim row_count = layer.rows(up);
  Op& act = layer.op(gated ? OpKind::GatedActivation : OpKind::Activation, shape.activation, {up});
  act.attributes.activation = spec.activation;
  act.modules.add(Module::Activations);
  if (shape.num_experts > 0) act.modules.add(Module::MoeAct);
  return layer.output(act, {row_count, fixed(f)});
}

TensorId append_mlp(LayerBuilder& layer, const MlpShape& shape, TensorId x) {
  const TensorId act = append_up_and_activation(layer, shape, x);
  return layer.linear({.name = shape.op_prefix + "down",
                       .weight = shape.weights + "down_proj",
                       .out = shape.out,
                       .split = Split::Row,
                       .bias = shape.bias,
                       .init = Init::ScaledNormal,
                       .num_experts = shape.num_experts},
                      act);
}

struct Routing {
  TensorId probabilities = 0;
  TensorId choices = 0;
};

Routing append_router(LayerBuilder& layer, TensorId x) {
  const MoeSpec& moe = *layer.spec().moe;
  const Dim row_count = layer.rows(x);
  const Dim experts = fixed(moe.num_experts);
  Op& op = layer.op(OpKind::Router, "router", {x});
  op.attributes.num_experts = moe.num_experts;
  op.attributes.top_k = moe.top_k;
  op.attributes.router = moe.router;
  op.parameters.push_back(
      layer.parameter("mlp.gate.weight", {experts, fixed(layer.width(x))}, Init::Normal));
  if (moe.router.bias)
    op.parameters.push_back(layer.parameter("mlp.gate.bias", {experts}, Init::Zeros));
  if (moe.router.correction_bias) {
    const TensorId bias =
        layer.parameter("mlp.gate.e_score_correction_bias", {experts}, Init::Zeros);
    layer.mark_untrained(bias);
    op.parameters.push_back(bias);
  }
  Routing routing;
  routing.probabilities = layer.statistic(op, "probabilities", {row_count, fixed(moe.top_k)});
  routing.choices =
      layer.tensor("router.choices", TensorClass::Index, {row_count, fixed(moe.top_k)});
  op.outputs.push_back(routing.choices);
  layer.statistic(op, "scores", {row_count, experts});
  return routing;
}

TensorId append_shared_expert(LayerBuilder& layer, TensorId x) {
  const ModuleScope shared_experts(layer, Module::SharedExperts);
  const MoeSpec& moe = *layer.spec().moe;
  const TensorId shared = append_mlp(layer,
                                     {.op_prefix = "shared_",
                                      .gate_up = "shared_gate_up",
                                      .activation = "shared_activation",
                                      .weights = "mlp.shared_expert.",
                                      .ffn_size = moe.shared_expert_ffn_size,
                                      .bias = layer.spec().mlp_bias,
                                      .out = layer.spec().hidden_size},
                                     x);
  if (!moe.shared_expert_gate) return shared;
  const TensorId gate =
      layer.linear({.name = "shared_gate", .weight = "mlp.shared_expert_gate", .out = 1}, x);
  const std::vector<Dim> shape{layer.rows(shared), fixed(layer.width(shared))};
  return layer.output(layer.op(OpKind::SigmoidGate, "gated_shared", {shared, gate}), shape);
}

}  // namespace

TensorId append_mlp(LayerBuilder& layer, TensorId x) {
  const ModuleScope mlp(layer, Module::Mlp);
  return append_mlp(layer,
                    {.op_prefix = "mlp_",
                     .gate_up = "gate_up",
                     .activation = "activation",
                     .weights = "mlp.",
                     .ffn_size = layer.spec().ffn_size,
                     .bias = layer.spec().mlp_bias,
                     .out = layer.spec().hidden_size},
                    x);
}

TensorId append_moe(LayerBuilder& layer, TensorId x) {
  const ModuleScope experts_and_router(layer, Module::Moe);
  const MoeSpec& moe = *layer.spec().moe;
  const Routing routing = append_router(layer, x);
  const TensorId own =
      moe.latent_size
          ? layer.linear(
                {.name = "latent_down", .weight = "mlp.latent_down_proj", .out = *moe.latent_size},
                x)
          : x;
  const std::vector<Dim> shape{layer.rows(own), fixed(layer.width(own))};
  const TensorId rows = layer.output(layer.op(OpKind::Dispatch, "dispatch", {own, routing.choices}),
                                     {routed_tokens(), shape.back()});
  const TensorId experts = append_mlp(layer,
                                      {.op_prefix = "expert_",
                                       .gate_up = "expert_gate_up",
                                       .activation = "expert_activation",
                                       .weights = "mlp.experts.",
                                       .ffn_size = moe.expert_ffn_size,
                                       .bias = moe.expert_bias,
                                       .num_experts = moe.num_experts,
                                       .out = shape.back().count},
                                      rows);
  TensorId combined = layer.output(
      layer.op(OpKind::Combine, "combine", {experts, routing.probabilities, routing.choices}),
      shape);
  if (moe.latent_norm) combined = layer.norm("latent_norm", "mlp.latent_norm", combined);
  if (moe.latent_size)
    combined = layer.linear(
        {.name = "latent_up", .weight = "mlp.latent_up_proj", .out = layer.spec().hidden_size},
        combined);
  if (moe.shared_expert_ffn_size == 0) return combined;
  return layer.add("shared_add", combined, append_shared_expert(layer, x));
}

}  // namespace meshplan::models
