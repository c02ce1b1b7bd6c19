// `vision_config` of multimodal models: the towers differ in names more than in parts.
#include <algorithm>
#include <cmath>

#include "core/limits.hpp"
#include "hf/family_parts.hpp"
#include "hf/sizes.hpp"

namespace meshplan::models {
namespace {

enum class Projector {
  Merger,           // merged patches, through their own width, to the decoder's (Qwen-VL, Kimi)
  TwoLayers,        // merged patches to the decoder's width, and once more (LLaVA, InternVL)
  Linear,           // to the decoder's width (Gemma)
  MergedTwoLayers,  // merged patches to the tower's width, then as TwoLayers (Mistral 3)
  Adapter,          // two layers of the tower's own, then the decoder's width (Llama 4)
};

/// What no key of a tower says.
struct Tower {
  std::string_view model_type;
  bool gated = false, biases = true, rms_norm = false, four_norms = false, qk_norm = false;
  Projector projector = Projector::TwoLayers;
};

constexpr std::array<Tower, 16> kTowers{
    {{.model_type = "qwen2_vl", .projector = Projector::Merger},
     {.model_type = "qwen2_5_vl", .gated = true, .rms_norm = true, .projector = Projector::Merger},
     {.model_type = "qwen2_5_omni_thinker",
      .gated = true,
      .rms_norm = true,
      .projector = Projector::Merger},
     {.model_type = "qwen3_omni_moe_thinker", .projector = Projector::Merger},
     {.model_type = "qwen3_vl", .projector = Projector::Merger},
     {.model_type = "qwen3_vl_moe", .projector = Projector::Merger},
     {.model_type = "qwen3_5", .projector = Projector::Merger},
     {.model_type = "qwen3_5_moe", .projector = Projector::Merger},
     {.model_type = "gemma4",
      .gated = true,
      .biases = false,
      .rms_norm = true,
      .four_norms = true,
      .qk_norm = true,
      .projector = Projector::Linear},
     {.model_type = "gemma3", .projector = Projector::Linear},
     {.model_type = "paligemma", .projector = Projector::Linear},
     {.model_type = "kimi_k3", .biases = false, .rms_norm = true, .projector = Projector::Merger},
     {.model_type = "kimi_k25", .projector = Projector::Merger},
     {.model_type = "llama4", .projector = Projector::Adapter},
     {.model_type = "mistral3",
      .gated = true,
      .biases = false,
      .rms_norm = true,
      .projector = Projector::MergedTwoLayers},
     {.model_type = "glm4v_moe",
      .gated = true,
      .biases = false,
      .rms_norm = true,
      .projector = Projector::Merger}}};

int first_integer(const HfConfig& config, Keys keys, int fallback) {
  for (const std::string_view key : keys)
    if (const auto value = config.own_first_number(key))
      return static_cast<int>(std::clamp(*value, 0.0, static_cast<double>(limits::kWidth)));
  return fallback;
}

/// Patches on a side that become one token.
int merged_side(const HfConfig& vision, const HfConfig& root) {
  if (const int side = first_integer(vision, {"spatial_merge_size", "pooling_kernel_size"}, 0))
    return side;
  if (const auto kernel = vision.own_integers("merge_kernel_size"); !kernel.empty())
    return kernel.front();
  if (const int side = first_integer(root, {"spatial_merge_size"}, 0)) return side;
  for (const HfConfig* config : {&vision, &root})
    for (const char* key : {"pixel_shuffle_ratio", "downsample_ratio"})
      if (const auto ratio = config->own_number(key); ratio && *ratio > 0 && *ratio <= 1)
        return as_size(std::round(1 / *ratio));
  return 1;
}

int positions_of(const HfConfig& vision, int patch) {
  if (const int rows = first_integer(vision, {"num_position_embeddings"}, 0)) return rows;
  if (const int rows = first_integer(vision, {"position_embedding_size"}, 0)) return 2 * rows;
  const int height = first_integer(vision, {"init_pos_emb_height"}, 0);
  if (height > 0)
    return product_of_sizes(height, first_integer(vision, {"init_pos_emb_width"}, height));
  const int side = first_integer(vision, {"image_size"}, 0) / std::max(1, patch);
  return side > 0 ? sum_of_sizes(product_of_sizes(side, side), 1) : 0;
}

std::vector<int> projector_of(Projector kind, const HfConfig& vision, int width, int merged,
                              int out) {
  switch (kind) {
    case Projector::Merger:
      return {merged, merged, out};
    case Projector::TwoLayers:
      return {merged, out, out};
    case Projector::Linear:
      return {merged, out};
    case Projector::MergedTwoLayers:
      return {merged, width, out, out};
    case Projector::Adapter:
      break;
  }
  const int inner = first_integer(vision, {"projector_output_dim", "vision_output_dim"}, 4096);
  return {merged, inner, inner, out};
}

}  // namespace

std::optional<VisionSpec> read_vision(const HfConfig& root, const std::string& model_type,
                                      const ModelSpec& text) {
  const auto config = root.object("vision_config");
  if (!config) return std::nullopt;
  const auto known = std::ranges::find(kTowers, model_type, &Tower::model_type);
  const Tower tower = known == kTowers.end() ? Tower{} : *known;
  VisionSpec vision;
  vision.num_layers = first_integer(
      *config, {"depth", "num_hidden_layers", "vt_num_hidden_layers", "num_layers"}, 0);
  vision.hidden_size =
      first_integer(*config, {"vt_hidden_size", "embed_dim", "hidden_size", "width"}, 0);
  vision.num_heads =
      first_integer(*config, {"num_heads", "num_attention_heads", "vt_num_attention_heads"}, 0);
  if (vision.num_layers == 0 || vision.hidden_size == 0 || vision.num_heads == 0)
    return std::nullopt;  // the class's own tower, of which the file says nothing
  vision.ffn_size = first_integer(*config, {"intermediate_size", "vt_intermediate_size"}, 0);
  if (vision.ffn_size == 0)
    vision.ffn_size = as_size(config->own_number("mlp_ratio").value_or(4) * vision.hidden_size);
  const int attention = first_integer(*config, {"qkv_hidden_size"}, vision.hidden_size);
  vision.head_size = first_integer(*config, {"head_dim"}, attention / vision.num_heads);
  const int patch = first_integer(*config, {"patch_size"}, 14);
  const int frames = std::max(1, first_integer(*config, {"temporal_patch_size"}, 1));
  vision.patch_elements = product_of_sizes(
      product_of_sizes(first_integer(*config, {"in_channels", "num_channels", "in_chans"}, 3),
                       frames),
      product_of_sizes(patch, patch));
  vision.positions = positions_of(*config, patch);
  vision.gated = tower.gated;
  vision.biases = tower.biases;
  vision.rms_norm = tower.rms_norm;
  vision.four_norms = tower.four_norms;
  vision.qk_norm = tower.qk_norm;
  const int side = merged_side(*config, root);
  // Gemma pools patches instead of joining them.
  const int merged_patches = product_of_sizes(side, side);
  const int merged = product_of_sizes(vision.hidden_size,
                                      tower.projector == Projector::Linear ? 1 : merged_patches);
  vision.projector = projector_of(
      tower.projector, *config, vision.hidden_size, merged,
      first_integer(*config, {"out_hidden_size", "text_hidden_size"}, text.hidden_size));
  vision.projector_biases =
      tower.biases && tower.projector != Projector::Adapter && tower.projector != Projector::Linear;
  vision.projectors = 1 + static_cast<int>(config->own_integers("deepstack_visual_indexes").size());
  const int image = first_integer(*config, {"image_size"}, 0) / std::max(1, patch);
  const int pooled =
      product_of_sizes(first_integer(*config, {"default_output_length"}, 0), merged_patches);
  vision.image_patches = image > 0 ? product_of_sizes(image, image) : pooled > 0 ? pooled : 48 * 48;
  return vision;
}

}  // namespace meshplan::models
