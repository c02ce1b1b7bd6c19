#include "formats/torchtitan/models.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/spec_difference.hpp"

namespace meshplan::planner::torchtitan {
namespace {

/// Fields that change neither the shape of a weight nor what a step costs.
bool is_shape(std::string_view field) {
  constexpr std::array<std::string_view, 9> kOthers = {
      "name",     "num_layers",       "max_positions", "norm_epsilon",   "rope_base",
      "init_std", "moe.dense_layers", "window",        "attention_scale"};
  return std::ranges::find(kOthers, field) == kOthers.end() && !field.starts_with("rope_scaling") &&
         !field.starts_with("moe.router") && !field.starts_with("mla.norm_epsilon") &&
         !models::is_training_choice(field);
}

std::vector<models::FieldDifference> differences_of_shape(const models::ModelSpec& model,
                                                          const models::ModelSpec& preset) {
  std::vector<models::FieldDifference> found = models::differences(model, preset);
  std::erase_if(found, [](const models::FieldDifference& each) { return !is_shape(each.field); });
  return found;
}

bool has_first_layers_of(const models::ModelSpec& model, const models::ModelSpec& preset) {
  if (model.num_layers > preset.num_layers) return false;
  for (int layer = 0; layer < model.num_layers; ++layer)
    if (models::is_moe_layer(model, layer) != models::is_moe_layer(preset, layer)) return false;
  return true;
}

}  // namespace

const std::vector<Flavor>& flavors() {
  static const std::vector<Flavor> kAll = {
      {"llama3", "8B", "llama3_8b", "llama3-8b"},
      {"llama3", "70B", "llama3_70b", "llama3-70b"},
      {"llama3", "405B", "llama3_405b", "llama3.1-405b"},
      {"llama3", "1B", "llama3_8b", "llama3.2-1b"},
      {"qwen3", "8B", "qwen3_14b", "qwen3-8b"},
      {"qwen3", "30B-A3B", "qwen3_30b_a3b", "qwen3-30b-a3b"},
      {"qwen3", "235B-A22B", "qwen3_30b_a3b", "qwen3-235b-a22b"},
      {"deepseek_v3", "671B", "deepseek_v3_671b", "deepseek-v3"},
      {"gpt_oss", "20b", "gpt_oss_20b", "gpt-oss-20b"},
      {"gpt_oss", "120b", "gpt_oss_120b", "gpt-oss-120b"}};
  return kAll;
}

namespace {

/// A flavor that no preset has: in what it differs from one of its family.
struct OtherFlavor {
  std::string_view family, name, like;
  int layers, hidden, heads, kv_heads, ffn;
  bool tied;
};

/// DeepSeek-V2-Lite and V2, which torchtitan builds as deepseek_v3.
models::ModelSpec deepseek(std::string_view name) {
  const bool lite = name == "16B";
  models::ModelSpec spec = models::load_preset("deepseek-v3");
  spec.name = lite ? "deepseek-v2-lite" : "deepseek-v2";
  spec.num_layers = lite ? 27 : 60;
  spec.hidden_size = lite ? 2048 : 5120;
  spec.ffn_size = lite ? 10944 : 12288;
  spec.num_heads = spec.num_kv_heads = lite ? 16 : 128;
  spec.vocab_size = 102400;
  if (lite) spec.mla->q_lora_rank = std::nullopt;
  spec.moe->num_experts = lite ? 64 : 160;
  spec.moe->top_k = 6;
  spec.moe->expert_ffn_size = lite ? 1408 : 1536;
  spec.moe->shared_expert_ffn_size = 2 * spec.moe->expert_ffn_size;
  spec.moe->dense_layers = {0};
  spec.moe->router.score = models::RouterScore::Softmax;
  spec.moe->router.normalize_top_k = false;
  spec.moe->router.scaling_factor = lite ? 1 : 16;
  spec.moe->router.num_groups = lite ? 1 : 8;
  spec.moe->router.top_groups = lite ? 1 : 3;
  return spec;
}

/// pytorch/torchtitan at b5bcd76c, models/FAMILY/__init__.py.
std::optional<models::ModelSpec> other_model(std::string_view family, std::string_view flavor) {
  constexpr std::array<OtherFlavor, 9> kOthers = {
      {{"llama2", "7B", "llama2-7b", 32, 4096, 32, 32, 11008, false},
       {"llama2", "13B", "llama2-7b", 40, 5120, 40, 40, 13824, false},
       {"llama2", "70B", "llama2-7b", 80, 8192, 64, 8, 28672, false},
       {"llama3", "3B", "llama3.2-1b", 28, 3072, 24, 8, 8192, true},
       {"qwen3", "0.6B", "qwen3-8b", 28, 1024, 16, 8, 3072, true},
       {"qwen3", "1.7B", "qwen3-8b", 28, 2048, 16, 8, 6144, true},
       {"qwen3", "4B", "qwen3-8b", 36, 2560, 32, 8, 9728, true},
       {"qwen3", "14B", "qwen3-8b", 40, 5120, 40, 8, 17408, false},
       {"qwen3", "32B", "qwen3-8b", 64, 5120, 64, 8, 25600, false}}};
  if (family == "deepseek_v3" && (flavor == "16B" || flavor == "236B")) return deepseek(flavor);
  for (const OtherFlavor& each : kOthers) {
    if (each.family != family || each.name != flavor) continue;
    models::ModelSpec spec = models::load_preset(each.like);
    spec.name = fmt::format("{}-{}", family, flavor);
    spec.num_layers = each.layers;
    spec.hidden_size = each.hidden;
    spec.num_heads = each.heads;
    spec.num_kv_heads = each.kv_heads;
    spec.head_size = 128;
    spec.ffn_size = each.ffn;
    spec.tied_embeddings = each.tied;
    return spec;
  }
  return std::nullopt;
}

}  // namespace

const BaseConfiguration* base_configuration(std::string_view function) {
  static const std::vector<BaseConfiguration> kAll = {
      {.function = "llama3_8b", .family = "llama3", .flavor = "8B", .seq_len = 8192},
      {.function = "llama3_70b",
       .family = "llama3",
       .flavor = "70B",
       .micro_batch = 8,
       .seq_len = 8192,
       .tp = 8,
       .full_checkpoint = true},
      {.function = "llama3_405b",
       .family = "llama3",
       .flavor = "405B",
       .micro_batch = 2,
       .seq_len = 8192,
       .tp = 8,
       .full_checkpoint = true,
       .compiled = true,
       .float8 = true},
      {.function = "qwen3_0_6b",
       .family = "qwen3",
       .flavor = "0.6B",
       .micro_batch = 4,
       .seq_len = 4096},
      {.function = "qwen3_1_7b",
       .family = "qwen3",
       .flavor = "1.7B",
       .micro_batch = 4,
       .seq_len = 4096},
      {.function = "qwen3_14b",
       .family = "qwen3",
       .flavor = "14B",
       .micro_batch = 4,
       .seq_len = 4096,
       .full_checkpoint = true},
      {.function = "qwen3_30b_a3b",
       .family = "qwen3",
       .flavor = "30B-A3B",
       .micro_batch = 2,
       .seq_len = 4096,
       .full_checkpoint = true},
      {.function = "deepseek_v3_671b",
       .family = "deepseek_v3",
       .flavor = "671B",
       .micro_batch = 4,
       .seq_len = 4096,
       .ep = 2,
       .schedule = "Interleaved1F1B"},
      {.function = "gpt_oss_20b",
       .family = "gpt_oss",
       .flavor = "20b",
       .seq_len = 8192,
       .full_checkpoint = true},
      {.function = "gpt_oss_120b",
       .family = "gpt_oss",
       .flavor = "120b",
       .seq_len = 8192,
       .full_checkpoint = true}};
  const auto found = std::ranges::find(kAll, function, &BaseConfiguration::function);
  return found == kAll.end() ? nullptr : &*found;
}

std::optional<models::ModelSpec> model_of(std::string_view family, std::string_view flavor) {
  for (const Flavor& each : flavors())
    if (each.family == family && each.name == flavor) return models::load_preset(each.preset);
  return other_model(family, flavor);
}

bool same_shape(const models::ModelSpec& model, const models::ModelSpec& preset) {
  return model.num_layers == preset.num_layers && model.window == preset.window &&
         differences_of_shape(model, preset).empty() && has_first_layers_of(model, preset);
}

const Flavor* flavor_of(const models::ModelSpec& model) {
  for (const Flavor& each : flavors()) {
    const models::ModelSpec preset = models::load_preset(each.preset);
    if (differences_of_shape(model, preset).empty() && has_first_layers_of(model, preset))
      return &each;
  }
  return nullptr;
}

std::string nearest_flavor(const models::ModelSpec& model) {
  const Flavor* nearest = nullptr;
  std::vector<models::FieldDifference> fewest;
  for (const Flavor& each : flavors()) {
    auto found = differences_of_shape(model, models::load_preset(each.preset));
    if (nearest == nullptr || found.size() < fewest.size()) {
      nearest = &each;
      fewest = std::move(found);
    }
  }
  std::vector<std::string> words;
  for (const models::FieldDifference& field : fewest)
    words.push_back(fmt::format("{} {} instead of {}", field.field, field.right, field.left));
  if (words.empty()) words.emplace_back("other kinds of layers, or fewer of them");
  return fmt::format("{} {}, which has {}", nearest->family, nearest->name, fmt::join(words, ", "));
}

}  // namespace meshplan::planner::torchtitan
