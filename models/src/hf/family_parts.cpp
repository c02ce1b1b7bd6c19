#include "hf/family_parts.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/index.hpp"
#include "core/limits.hpp"
#include "hf/sizes.hpp"

namespace meshplan::models {

void fill_llama_dense(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_act"});
}

void fill_gpt_like(HfConfig& config, ModelSpec& spec, Keys epsilon) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  spec.norm = Norm::LayerNorm;
  spec.norm_epsilon = config.number(epsilon);
  spec.mlp = Mlp::Plain;
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
}

void set_attention_bias(HfConfig& config, ModelSpec& spec) {
  spec.qkv_bias = spec.attention_out_bias = config.flag({"attention_bias"});
}

void predict_only(ModelSpec& spec, std::string part) {
  spec.only_predicted.push_back(std::move(part));
}

void predict_only_if(HfConfig& config, ModelSpec& spec, std::string_view key, bool usual,
                     std::string_view part) {
  if (config.flag_or({key}, usual) != usual) predict_only(spec, fmt::format("{} ({})", part, key));
}

Mixers uniform(const ModelSpec& spec, Mixer kind) {
  return Mixers(at(spec.num_layers), kind);
}

Mixers full_every(const ModelSpec& spec, int interval, Mixer kind) {
  Mixers layers = uniform(spec, kind);
  for (int i = 0; i < spec.num_layers; ++i)
    if ((i + 1) % interval == 0) layers[at(i)] = Mixer::Full;
  return layers;
}

namespace {

/// The shortest prefix that repeats over all layers; empty if every layer is `usual`.
template <class Kind>
std::vector<Kind> shortest_period(const std::vector<Kind>& layers, Kind usual) {
  for (std::size_t period = 1; period <= layers.size(); ++period) {
    bool repeats = true;
    for (std::size_t i = period; i < layers.size() && repeats; ++i)
      repeats = layers[i] == layers[i - period];
    if (!repeats) continue;
    if (period == 1 && layers.front() == usual) return {};
    return {layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(period)};
  }
  return {};
}

}  // namespace

void set_mixers(ModelSpec& spec, const Mixers& mixers) {
  spec.layer_pattern = shortest_period(mixers, Mixer::Full);
}

void set_ffns(ModelSpec& spec, const std::vector<FeedForward>& ffns) {
  spec.ffn_pattern = shortest_period(ffns, spec.moe ? FeedForward::Moe : FeedForward::Dense);
}

void LayerChanges::store(ModelSpec& spec) const {
  for (int layer = 0; layer < spec.num_layers; ++layer) {
    const LayerVariant& own = of_[at(layer)];
    if (own == LayerVariant{}) continue;
    const auto same = [&](LayerVariant known) {
      known.layers.clear();
      return known == own;
    };
    auto known = std::ranges::find_if(spec.layer_variants, same);
    if (known == spec.layer_variants.end()) known = spec.layer_variants.insert(known, own);
    known->layers.push_back(layer);
  }
}

std::vector<int> layers_without_rope(HfConfig& config, const ModelSpec& spec) {
  std::vector<int> without;
  const std::vector<int> said = config.integers({"no_rope_layers"});
  const int interval = said.empty() ? config.positive({"no_rope_layer_interval"}) : 1;
  if (!said.empty() && said.size() < at(spec.num_layers))
    config.fail("no_rope_layers", fmt::format("has {} entries, but num_hidden_layers is {}",
                                              said.size(), spec.num_layers));
  if (!said.empty()) config.ignore("no_rope_layer_interval", "said by no_rope_layers");
  for (int layer = 0; layer < spec.num_layers; ++layer)
    if (said.empty() ? (layer + 1) % interval == 0 : said[at(layer)] == 0) without.push_back(layer);
  return without;
}

std::vector<int> dense_layers(const ModelSpec& spec, int first_moe, int step) {
  std::vector<int> dense;
  for (int i = 0; i < spec.num_layers; ++i)
    if (i < first_moe || i % step != 0) dense.push_back(i);
  return dense;
}

void fill_deepseek_router(HfConfig& config, RouterSpec& router) {
  const std::string score = config.text({"scoring_func"});
  const std::vector<std::string> scores = {"sigmoid", "softmax", "sqrtsoftplus"};
  if (std::ranges::find(scores, score) == scores.end())
    config.fail("scoring_func", unknown_name_message("score", score, scores));
  router.score = score == "sigmoid"        ? RouterScore::Sigmoid
                 : score == "sqrtsoftplus" ? RouterScore::SqrtSoftplus
                                           : RouterScore::Softmax;
  const std::string method = config.text({"topk_method"});
  if (method != "noaux_tc" && method != "greedy" && method != "group_limited_greedy")
    config.fail(
        "topk_method",
        unknown_name_message("method", method, {"noaux_tc", "greedy", "group_limited_greedy"}));
  router.correction_bias = method == "noaux_tc";
  router.normalize_top_k = config.flag({"norm_topk_prob"});
  router.scaling_factor = config.number({"routed_scaling_factor", "moe_router_scaling_factor"});
  if (method == "greedy") return;
  router.num_groups = config.positive({"n_group"});
  router.top_groups = config.positive({"topk_group"});
}

int expanded_width(HfConfig& config, const ModelSpec& spec, Keys factor) {
  return product_of_sizes(config.positive(factor), spec.hidden_size);
}

int shared_width(const HfConfig& config, std::string_view key, int count, int width) {
  if (width > 0 && count > limits::kWidth / width)
    config.fail(key, fmt::format("{} shared experts of width {} are wider than {}; at most {}",
                                 count, width, limits::kWidth, limits::kWidth / width));
  return count * width;
}

int shared_width(HfConfig& config, Keys count, int width) {
  return shared_width(config, *count.begin(), config.integer(count), width);
}

void fill_deepseek_experts(HfConfig& config, ModelSpec& spec) {
  MoeSpec moe;
  moe.num_experts = config.integer({"n_routed_experts", "num_local_experts", "num_experts"});
  if (moe.num_experts == 0) return;
  moe.top_k = config.positive({"num_experts_per_tok", "num_experts_per_token"});
  moe.expert_ffn_size = config.width({"moe_intermediate_size"});
  const Keys shared = {"n_shared_experts", "num_shared_experts"};
  if (config.optional_integer(shared))
    moe.shared_expert_ffn_size = shared_width(config, shared, moe.expert_ffn_size);
  const int first_moe = config.integer({"first_k_dense_replace"});
  moe.dense_layers = dense_layers(spec, first_moe, config.positive({"moe_layer_freq"}));
  if (config.has("mlp_layer_types")) {  // of transformers 5
    const std::vector<std::string> kinds = config.texts({"mlp_layer_types"});
    moe.dense_layers.clear();
    for (int i = 0; i < spec.num_layers && at(i) < kinds.size(); ++i)
      if (kinds[at(i)] == "dense") moe.dense_layers.push_back(i);
  }
  fill_deepseek_router(config, moe.router);
  if (moe.dense_layers.size() < at(spec.num_layers)) spec.moe = std::move(moe);
}

}  // namespace meshplan::models
