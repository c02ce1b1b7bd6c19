// The graph of a vision tower: its blocks are layers of an encoder.
#include "layer_builder.hpp"

namespace meshplan::models {

ModelSpec spec_of_tower(const VisionSpec& vision) {
  ModelSpec spec;
  spec.name = "vision tower";
  spec.num_layers = vision.num_layers;
  spec.hidden_size = vision.hidden_size;
  spec.ffn_size = vision.ffn_size;
  spec.num_heads = spec.num_kv_heads = vision.num_heads;
  spec.head_size = vision.head_size;
  spec.vocab_size = 1;
  spec.max_positions = vision.image_patches;
  spec.norm = vision.rms_norm ? Norm::RmsNorm : Norm::LayerNorm;
  spec.norm_placement = vision.four_norms ? NormPlacement::PrePost : NormPlacement::Pre;
  spec.mlp = vision.gated ? Mlp::Gated : Mlp::Plain;
  spec.activation = vision.gated ? ActivationKind::Silu : ActivationKind::GeluTanh;
  spec.positions = Positions::None;
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = vision.biases;
  spec.qk_norm = vision.qk_norm;
  spec.causal = false;
  return spec;
}

VisionGraph vision_graph(const VisionSpec& vision) {
  const ModelSpec spec = spec_of_tower(vision);
  VisionGraph graph{.layers = vision.num_layers,
                    .projectors = vision.projectors,
                    .image_patches = vision.image_patches,
                    .patches_per_token = vision.patches_per_token(),
                    .images_per_sequence = vision.images_per_sequence};
  LayerBuilder patches("vision_patches", spec);
  const TensorId pixels =
      patches.tensor("pixels", TensorClass::Activation, {tokens(), fixed(vision.patch_elements)});
  TensorId x = patches.linear({.name = "patch_embedding",
                               .weight = "vision.patch_embed",
                               .out = vision.hidden_size,
                               .bias = vision.biases},
                              pixels);
  if (vision.positions > 0) {
    Op& positions = patches.op(OpKind::PositionEmbedding, "patch_positions", {x});
    positions.parameters.push_back(
        patches.parameter("vision.pos_embed.weight",
                          {fixed(vision.positions), fixed(vision.hidden_size)}, Init::Normal));
    x = patches.output(positions, {tokens(), fixed(vision.hidden_size)});
  }
  patches.set_output(x);
  graph.patches = patches.take();
  graph.block = layer_graph(spec, Mixer::Full, FeedForward::Dense, "vision_block");

  // Its rows are merged patches.
  LayerBuilder projector("vision_projector", spec);
  TensorId y = projector.tensor(
      "merged", TensorClass::Activation,
      {tokens(), fixed(vision.projector.empty() ? vision.hidden_size : vision.projector.front())});
  y = projector.norm("projector_norm", "vision.projector.norm", y);
  for (std::size_t i = 1; i < vision.projector.size(); ++i)
    y = projector.linear({.name = "projector_" + std::to_string(i),
                          .weight = "vision.projector." + std::to_string(i),
                          .out = vision.projector[i],
                          .bias = vision.projector_biases},
                         y);
  projector.set_output(y);
  graph.projector = projector.take();
  return graph;
}

}  // namespace meshplan::models
