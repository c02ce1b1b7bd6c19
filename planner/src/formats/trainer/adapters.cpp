#include "formats/trainer/adapters.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "core/line.hpp"
#include "models/adapters.hpp"

namespace meshplan::planner::trainer {
namespace {

/// PEFT's names of linears: those of transformers' classes, where q, k and v are not fused.
std::vector<std::string> every_linear(const models::ModelSpec& model) {
  std::vector<std::string> names;
  for (const std::string& module : models::linear_modules(model)) {
    const std::vector<std::string> parts = models::parts_of_module(module);
    if (parts.empty() || (module == "gate_up_proj" && model.mlp != models::Mlp::Gated))
      names.push_back(module);
    else
      names.insert(names.end(), parts.begin(), parts.end());
  }
  return names;
}

std::vector<std::string> modules_of(const Settings& in, const Adapters& adapters,
                                    const models::ModelSpec& model) {
  std::vector<std::string> known = every_linear(model);
  const auto fail = [&](std::string_view what) {
    throw ConfigError(fmt::format("{}: adapters on {}, of which the model has {}", in.file(), what,
                                  fmt::join(known, ", ")));
  };
  if (adapters.modules.empty()) fail("no module");
  const bool all = std::ranges::any_of(adapters.modules, [](const std::string& name) {
    return name == "all" || name == "all-linear";
  });
  const bool beside_attention = std::ranges::any_of(adapters.modules, [](const std::string& name) {
    return name != "q_proj" && name != "k_proj" && name != "v_proj" && name != "o_proj";
  });
  if (model.moe && beside_attention)
    throw ConfigError(fmt::format(
        "{}: {} on {}: which of the experts have adapters is in the code; read are those "
        "of attention: q_proj, k_proj, v_proj, o_proj",
        in.file(), adapters.kind,
        short_line(fmt::format("{}", fmt::join(adapters.modules, ", ")))));
  if (all) return known;
  std::vector<std::string> modules;
  for (const std::string& name : adapters.modules) {
    if (std::ranges::find(known, name) == known.end()) fail(fmt::format("'{}'", short_line(name)));
    if (std::ranges::find(modules, name) == modules.end()) modules.push_back(name);
  }
  return modules;
}

/// What is trained whole beside the adapters, as patterns.
std::vector<std::string> patterns_of_whole(const Settings& in, const Adapters& adapters,
                                           const models::ModelSpec& model) {
  std::vector<std::string> patterns;
  for (const std::string& module : adapters.whole) {
    const bool embeds = module == "embed_tokens" || module == "embed_token";
    if (!embeds && module != "lm_head")
      throw ConfigError(fmt::format(
          "{}: '{}' is trained whole beside adapters; read are embed_tokens and lm_head", in.file(),
          short_line(module)));
    patterns.emplace_back(embeds || model.tied_embeddings ? "!embedding" : "!head");
  }
  return patterns;
}

}  // namespace

std::vector<std::string> words_between_commas(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::size_t first = text.find_first_not_of(' ', at);
    if (first < end)
      words.push_back(text.substr(first, text.find_last_not_of(' ', end - 1) + 1 - first));
    at = end + 1;
  }
  return words;
}

void read_adapters(Settings& in, const std::array<std::string_view, 4>& names, Adapters& adapters) {
  adapters.rank = in.small(names[0], between(1, limits::kTokens));
  adapters.alpha = in.number(names[1], between(0, limits::kRate));
  adapters.dropout = in.number(names[2], between(0, 1)).value_or(0);
  const Json* modules = in.value(names[3]);
  if (modules == nullptr) return;
  std::string text;
  if (modules->is_string()) text = modules->get<std::string>();
  if (modules->is_array())
    for (const Json& module : *modules)
      if (module.is_string()) adapters.modules.push_back(module.get<std::string>());
  for (std::string& word : words_between_commas(text)) adapters.modules.push_back(std::move(word));
}

void apply_adapters(const Settings& in, const Adapters& adapters, ImportedPlan& imported) {
  if (adapters.kind.empty()) return;
  if (adapters.kind != "lora" && adapters.kind != "qlora")
    throw ConfigError(fmt::format("{}: {}: '{}': adapters of a plan are LoRA's; nearest: lora",
                                  in.file(), adapters.key, short_line(adapters.kind)));
  if (!adapters.rank)
    throw ConfigError(fmt::format("{}: {}: '{}' without a rank", in.file(), adapters.key,
                                  short_line(adapters.kind)));
  program::Plan& plan = imported.plan;
  const std::vector<std::string> modules = modules_of(in, adapters, plan.model);
  const std::vector<std::string> whole = patterns_of_whole(in, adapters, plan.model);
  plan.model.adapters = models::AdapterSpec{
      .rank = *adapters.rank, .alpha = adapters.alpha.value_or(0), .modules = modules};
  plan.frozen = models::all_but_adapters();
  plan.frozen.insert(plan.frozen.end(), whole.begin(), whole.end());
  program::StackSettings& settings = plan.stack.settings;
  if (adapters.base_bits <= 8)
    settings.frozen_storage =
        adapters.base_bits <= 4 ? program::FrozenStorage::Nf4 : program::FrozenStorage::Int8;
  if (adapters.dropout > 0)
    imported.assumptions.push_back(
        fmt::format("dropout of adapters ({}): without its masks", adapters.dropout));
}

}  // namespace meshplan::planner::trainer
