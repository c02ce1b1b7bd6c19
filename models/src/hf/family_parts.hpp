// What families of Hugging Face configs share: from keys to the parts of a layer.
#pragma once

#include <functional>
#include <vector>

#include "hf/hf_config.hpp"

namespace meshplan::models {

/// Layers, widths, heads and vocabulary under any of the names that families have for them.
void fill_sizes(HfConfig& config, ModelSpec& spec);
/// Key/value heads and head size.
void fill_heads(HfConfig& config, ModelSpec& spec);
enum class RotatedParts { OfAllLayers, OfEachKind };
/// Base, local base, rotated part, scaling. @param parts  OfEachKind: what is read is that of full
/// layers
void fill_rope(HfConfig& config, ModelSpec& spec, RotatedParts parts = RotatedParts::OfAllLayers);
/// Sizes, heads, rope, RMS norm, tying.
void fill_llama_like(HfConfig& config, ModelSpec& spec);
/// The same with a gated dense MLP of `intermediate_size`.
void fill_llama_dense(HfConfig& config, ModelSpec& spec);
/// Sizes, heads, layer norm with a bias, plain MLP: GPT-2 and what came of it.
/// @param epsilon  its key
void fill_gpt_like(HfConfig& config, ModelSpec& spec, Keys epsilon);
void set_attention_bias(HfConfig& config, ModelSpec& spec);
/// The largest of the rates; a key without class default counts as 0.
void fill_dropout(HfConfig& config, ModelSpec& spec, Keys keys);
/// Coefficient of the balance loss that transformers trains with in each layer, which is 0: its own
/// is over the whole batch and all layers jointly, and only predicted.
double balance_loss(HfConfig& config, ModelSpec& spec);
void require_no_jitter(HfConfig& config);
/// @throws ConfigError unless the flag is absent or `value`
void require_absent_or(HfConfig& config, std::string_view key, bool value, std::string_view reason);
/// A part of the function that no field of a model says.
void predict_only(ModelSpec& spec, std::string part);
/// The same, where the flag is set.
void predict_only_if(HfConfig& config, ModelSpec& spec, std::string_view key, bool usual,
                     std::string_view part);

using Mixers = std::vector<Mixer>;
/// Every layer `kind`.
Mixers uniform(const ModelSpec& spec, Mixer kind);
/// Every `interval`-th layer is Full, the others are `kind`.
Mixers full_every(const ModelSpec& spec, int interval, Mixer kind);
/// `layer_types` where the file has them, else `fallback` (one entry per layer); the window too.
void fill_layer_types(HfConfig& config, ModelSpec& spec, Mixers fallback);
/// The shortest pattern that gives these.
void set_mixers(ModelSpec& spec, const Mixers& mixers);
void set_ffns(ModelSpec& spec, const std::vector<FeedForward>& ffns);

/// What single layers have otherwise, gathered to variants.
class LayerChanges {
 public:
  explicit LayerChanges(int num_layers) : of_(static_cast<std::size_t>(num_layers)) {}
  LayerVariant& of(int layer) { return of_[static_cast<std::size_t>(layer)]; }
  void store(ModelSpec& spec) const;

 private:
  std::vector<LayerVariant> of_;
};

/// Layers without positions: `no_rope_layers` has 0 for them, else every n-th one has none.
std::vector<int> layers_without_rope(HfConfig& config, const ModelSpec& spec);

/// The layers that are no MoE layers: the first ones, and those between every `step`-th.
std::vector<int> dense_layers(const ModelSpec& spec, int first_moe, int step);
/// Width of `count` shared experts of `width` each.
/// @param key  of the count  @throws ConfigError beyond limits::kWidth
int shared_width(const HfConfig& config, std::string_view key, int count, int width);
int shared_width(HfConfig& config, Keys count, int width);
/// The hidden size times the factor under a key.
int expanded_width(HfConfig& config, const ModelSpec& spec, Keys factor);
/// Router of DeepSeek's kind: scores, groups, correction bias, scaling.
void fill_deepseek_router(HfConfig& config, RouterSpec& router);
/// DeepSeek's experts: routed, shared, dense first.
void fill_deepseek_experts(HfConfig& config, ModelSpec& spec);

/// The tower that the file's `vision_config` describes, if it does. @param text  the decoder
std::optional<VisionSpec> read_vision(const HfConfig& root, const std::string& model_type,
                                      const ModelSpec& text);

}  // namespace meshplan::models
