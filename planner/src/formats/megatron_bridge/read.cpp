#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "formats/megatron/megatron.hpp"
#include "formats/megatron_bridge/adapters.hpp"
#include "formats/megatron_bridge/flags.hpp"
#include "formats/megatron_launch/launch.hpp"

namespace meshplan::planner {
namespace {

/// "llama3_8b_pretrain_2gpu_h100_bf16_config": 2
std::optional<std::int64_t> ranks_in_name(const std::string& function) {
  const std::size_t end = function.find("gpu_");
  if (end == std::string::npos) return std::nullopt;
  std::size_t begin = end;
  while (begin > 0 && function[begin - 1] >= '0' && function[begin - 1] <= '9') --begin;
  std::int64_t ranks = 0;
  const auto read = std::from_chars(function.data() + begin, function.data() + end, ranks);
  if (begin == end || read.ec != std::errc() || ranks < 1 || ranks > limits::kRanks)
    return std::nullopt;
  return ranks;
}

}  // namespace

ImportedPlan read_megatron_bridge(const ImportRequest& request) {
  const bridge::Recipe recipe = bridge::read_recipe(request);
  bridge::RecipeFlags flags = bridge::flags_of(recipe, request.model);
  ImportRequest named = request;
  named.main = recipe.file;
  named.model = flags.model;
  megatron::Launch launch{.arguments = std::move(flags.arguments)};
  launch.assumptions = std::move(flags.assumptions);
  if (!request.ranks) {
    launch.ranks = ranks_in_name(recipe.function);
    if (launch.ranks)
      launch.assumptions.push_back(
          fmt::format("{} GPUs (the recipe's name; others with --gpus)", *launch.ranks));
  }
  ImportedPlan imported = read_megatron_launch(named, {}, std::move(launch));
  if (flags.fp8_attention) imported.plan.stack.settings.fp8_attention = true;
  if (flags.model) imported.plan.stack.settings.dropout = flags.dropout;
  if (request.model) imported.plan.model.name = request.model->name;
  if (!request.model && !recipe.hub_name.empty()) {
    const std::string base = recipe.hub_name.substr(recipe.hub_name.rfind('/') + 1);
    std::vector<std::string> presets = models::preset_names();
    if (std::ranges::find(presets, imported.plan.model.name) == presets.end())
      imported.plan.model.name = base;
  }
  bridge::apply_adapters(recipe, imported);
  imported.facts["launch_script"] = 0;
  if (flags.model) imported.facts.erase("disable_bias_linear");  // the model itself says it
  // In the recipe's words.
  for (std::string& line : imported.ignored) {
    const auto field = flags.fields.find(line.substr(0, line.find(' ')));
    if (field != flags.fields.end()) line = field->second;
  }
  std::ranges::move(flags.ignored, std::back_inserter(imported.ignored));
  return imported;
}

bool recognizes_megatron_bridge(std::string_view name, std::string_view text) {
  return name.ends_with(".py") && (text.find("megatron.bridge") != std::string_view::npos ||
                                   text.find("ConfigContainer") != std::string_view::npos);
}

}  // namespace meshplan::planner
