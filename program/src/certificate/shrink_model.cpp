#include "certificate/shrink_model.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "program/plan/mesh.hpp"

namespace meshplan::program {
namespace {

using models::ModelSpec;

constexpr int kLeastHeads = 4;
constexpr int kExperts = 8;
constexpr int kMostChosen = 3;
constexpr int kGroups = 4;
constexpr int kWindow = 8;
constexpr int kMostModules = 2;
constexpr int kVocabulary = 96;
constexpr double kInitStd = 0.1;

void shrink_heads(const Plan& plan, const ModelSizes& sizes, int unit, ModelSpec& model) {
  const bool grouped = plan.model.num_heads > plan.model.num_kv_heads;
  const bool copied = kv_copies(plan) > 1;
  const int shards = sizes.head_shards;
  const int several = (kLeastHeads + shards - 1) / shards * shards;
  model.num_kv_heads = copied || plan.model.num_kv_heads == 1 ? 1 : several;
  model.num_heads = model.num_kv_heads * (grouped || copied ? 2 : 1);
  model.num_heads = std::max(model.num_heads, kLeastHeads);
  model.head_size = unit;
  if (model.rope_size)
    model.rope_size = *plan.model.rope_size < plan.model.head_size ? unit / 2 : unit;
  if (model.attention_scale) model.attention_scale = 1 / std::sqrt(model.head_size);
}

void shrink_latent(int unit, ModelSpec& model) {
  if (!model.mla) return;
  models::MlaSpec& mla = *model.mla;
  if (mla.q_lora_rank) mla.q_lora_rank = 3 * unit;
  mla.kv_lora_rank = 2 * unit;
  mla.qk_nope_head_size = mla.qk_rope_head_size = mla.v_head_size = unit;
  model.head_size = 2 * unit;
}

/// As many value heads to a key head as the model has, up to two; groups of Mamba like key heads.
void shrink_recurrences(int shards, int unit, ModelSpec& model) {
  const int several = (kLeastHeads + shards - 1) / shards * shards;
  if (auto& linear = model.linear_attention) {
    const bool grouped = linear->num_value_heads > linear->num_key_heads;
    linear->num_key_heads = several;
    linear->num_value_heads = grouped ? 2 * several : several;
    linear->key_head_size = linear->value_head_size = unit;
  }
  if (auto& mamba = model.mamba) {
    const bool grouped = mamba->num_groups < mamba->num_heads;
    const bool shared = mamba->num_groups == 1;
    mamba->num_groups = shared ? 1 : several;
    mamba->num_heads = grouped ? 2 * several : several;
    mamba->head_size = mamba->state_size = unit;
    mamba->chunk_size = kWindow;
  }
}

/// What the layers that are left have otherwise, in sizes that differ from the model's.
void shrink_variants(int shards, int unit, ModelSpec& model) {
  std::vector<models::LayerVariant> variants;
  for (models::LayerVariant variant : model.layer_variants) {
    const int layer = static_cast<int>(variants.size()) + 1;
    if (layer >= model.num_layers) break;
    variant.layers = {layer};
    if (variant.num_heads) variant.num_heads = model.num_heads * 2;
    if (variant.num_kv_heads) variant.num_kv_heads = variant.num_heads.value_or(model.num_heads);
    if (variant.ffn_size) variant.ffn_size = (8 + 2 * layer) * unit * shards;
    if (variant.head_size) variant.head_size = 2 * unit;
    if (variant.window) variant.window = 2 * kWindow;
    if (variant.rope_size) variant.rope_size = unit;
    variants.push_back(std::move(variant));
  }
  model.layer_variants = std::move(variants);
}

void shrink_experts(bool all, int unit, ModelSpec& model) {
  if (!model.moe) return;
  models::MoeSpec& moe = *model.moe;
  const bool chooses = moe.top_k < moe.num_experts;
  const bool chooses_groups = moe.router.top_groups < moe.router.num_groups;
  moe.num_experts = kExperts;
  moe.top_k = chooses && !all ? std::min(moe.top_k, kMostChosen) : kExperts;
  if (moe.router.num_groups > 1) moe.router.num_groups = kGroups;
  moe.router.top_groups = chooses_groups && !all ? std::max(2, kGroups / 2) : moe.router.num_groups;
  moe.expert_ffn_size = 4 * unit;
  if (moe.shared_expert_ffn_size > 0) moe.shared_expert_ffn_size = 4 * unit;
  if (moe.dense_layers.empty()) return;
  moe.dense_layers = {moe.dense_layers.front() == 0 ? 0 : 1};
}

void shrink_indexer(const ModelSizes& sizes, int unit, ModelSpec& model) {
  if (!model.sparse_attention) return;
  models::SparseAttentionSpec& sparse = *model.sparse_attention;
  sparse.index_heads = std::min(sparse.index_heads, kLeastHeads);
  sparse.index_head_size = 2 * unit;
  sparse.top_k = sizes.chooses_all ? static_cast<int>(sizes.seq_len) : kWindow;
}

/// Each kind of layer once, in the order in which they come.
void shrink_pattern(const ModelSpec& whole, ModelSpec& model) {
  if (whole.ffn_pattern.empty()) {
    if (!whole.layer_pattern.empty()) model.layer_pattern = models::mixers_of(whole);
  } else {
    model.layer_pattern.clear();
    model.ffn_pattern.clear();
    ModelSpec plain = whole;
    plain.layer_variants.clear();
    for (const int layer : models::layers_of_each_kind(plain)) {
      model.layer_pattern.push_back(models::mixer_of_layer(whole, layer));
      model.ffn_pattern.push_back(models::ffn_of_layer(whole, layer));
    }
  }
  if (model.window > 0) model.window = kWindow;
}

/// The part of a pattern behind "layers.", if it is a number or a range, for fewer layers.
std::string shrunk_numbers(const std::string& part, int layers, int shrunk_layers) {
  int first = 0, last = 0;
  const char* end = part.data() + part.size();
  const auto begin = std::from_chars(part.data(), end, first);
  if (begin.ec != std::errc()) return part;
  const auto scaled = [&](std::int64_t layer) {
    return static_cast<int>(std::clamp<std::int64_t>(layer, 0, layers) * shrunk_layers / layers);
  };
  if (begin.ptr == end) return std::to_string(std::min(scaled(first), shrunk_layers - 1));
  if (*begin.ptr != '-') return part;
  const auto range = std::from_chars(begin.ptr + 1, end, last);
  if (range.ec != std::errc() || range.ptr != end) return part;
  const int lowest = std::min(scaled(first), shrunk_layers - 1);
  return fmt::format("{}-{}", lowest, std::max(lowest, scaled(std::int64_t{last} + 1) - 1));
}

}  // namespace

ModelSpec shrunk_model(const Plan& plan, const ModelSizes& sizes) {
  const int unit = sizes.float8 ? 16 : 8;
  ModelSpec model = plan.model;
  model.num_layers = sizes.num_layers;
  model.hidden_size = 6 * unit;
  if (model.ffn_size > 0) model.ffn_size = 8 * unit;
  shrink_heads(plan, sizes, unit, model);
  shrink_latent(unit, model);
  shrink_experts(sizes.chooses_all, unit, model);
  shrink_indexer(sizes, unit, model);
  shrink_pattern(plan.model, model);
  shrink_recurrences(sizes.head_shards, unit, model);
  shrink_variants(sizes.head_shards, unit, model);
  const bool padded = plan.parallel.tp > 1 && plan.model.vocab_size % plan.parallel.tp != 0;
  model.vocab_size = kVocabulary + (padded ? 1 : 0);
  if (model.positions == models::Positions::Learned)
    model.max_positions = static_cast<int>(2 * sizes.seq_len);
  if (model.num_classes > 0) model.num_classes = std::clamp(model.num_classes, 2, 3);
  if (model.embedding_scale != 1) model.embedding_scale = std::sqrt(model.hidden_size);
  model.mtp_layers = std::min(model.mtp_layers, kMostModules);
  model.init_std = kInitStd;
  return model;
}

std::vector<std::string> shrunk_patterns(const std::vector<std::string>& patterns, int layers,
                                         int shrunk_layers) {
  constexpr std::string_view kLayers = "layers.";
  std::vector<std::string> shrunk;
  for (const std::string& pattern : patterns) {
    const std::size_t found = pattern.find(kLayers);
    if (found == std::string::npos) {
      shrunk.push_back(pattern);
      continue;
    }
    const std::size_t begin = found + kLayers.size();
    const std::size_t end = std::min(pattern.find('.', begin), pattern.size());
    shrunk.push_back(pattern.substr(0, begin) +
                     shrunk_numbers(pattern.substr(begin, end - begin), layers, shrunk_layers) +
                     pattern.substr(end));
  }
  return shrunk;
}

}  // namespace meshplan::program
