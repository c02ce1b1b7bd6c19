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

/// Each kind of attention once, in the order in which they come.
void shrink_pattern(ModelSpec& model) {
  std::vector<models::LayerAttention> kinds;
  for (const models::LayerAttention kind : model.layer_pattern)
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  model.layer_pattern = std::move(kinds);
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
  shrink_experts(sizes.all_experts, unit, model);
  shrink_pattern(model);
  const bool padded = plan.parallel.tp > 1 && plan.model.vocab_size % plan.parallel.tp != 0;
  model.vocab_size = kVocabulary + (padded ? 1 : 0);
  if (model.positions == models::Positions::Learned)
    model.max_positions = static_cast<int>(2 * sizes.seq_len);
  if (model.num_classes > 0) model.num_classes = std::clamp(model.num_classes, 2, 3);
  if (model.embedding_scale != 1) model.embedding_scale = std::sqrt(model.hidden_size);
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
