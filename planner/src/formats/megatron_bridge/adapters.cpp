// Source: Megatron-Bridge, src/megatron/bridge/peft/lora.py (LoRA, its defaults).
#include "formats/megatron_bridge/adapters.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "formats/megatron_bridge/field_values.hpp"
#include "models/adapters.hpp"
#include "python/tree.hpp"

namespace meshplan::planner::bridge {
namespace {

constexpr int kDefaultRank = 32;
constexpr double kDefaultAlpha = 32;

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kLinears = {
    {{"linear_qkv", "qkv_proj"},
     {"linear_proj", "o_proj"},
     {"linear_fc1", "gate_up_proj"},
     {"linear_fc2", "down_proj"},
     {"linear_q_down_proj", "q_a_proj"},
     {"linear_q_up_proj", "q_b_proj"},
     {"linear_kv_down_proj", "kv_a_proj_with_mqa"},
     {"linear_kv_up_proj", "kv_b_proj"}}};

[[noreturn]] void fail(const Recipe& recipe, const Json& value, std::string_view what) {
  throw ConfigError(fmt::format("{}: peft = {}: {}", recipe.file, shown(value), what));
}

std::vector<std::string> asked_linears(const Recipe& recipe, const Json& peft) {
  if (!peft.contains("target_modules") || peft.at("target_modules").is_null())
    return {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"};
  const Json& asked = peft.at("target_modules");
  const bool names = asked.is_array() &&
                     std::ranges::all_of(asked, [](const Json& each) { return each.is_string(); });
  if (!names) fail(recipe, peft, "target_modules is no list of names");
  return asked;
}

/// The plan's name of a linear, where the model has it.
std::string module_of(const Recipe& recipe, const Json& peft, const std::string& linear,
                      const models::ModelSpec& model) {
  const auto known =
      std::ranges::find(kLinears, linear, [](const auto& each) { return each.first; });
  std::string module(known == kLinears.end() ? "" : known->second);
  if (module == "gate_up_proj" && model.mlp == models::Mlp::Plain) module = "up_proj";
  const std::vector<std::string> has = models::linear_modules(model);
  if (std::ranges::find(has, module) == has.end())
    fail(recipe, peft,
         fmt::format("adapters on '{}': read are those on linears of all layers, {}", linear,
                     fmt::join(has, ", ")));
  const bool of_experts = module == "gate_up_proj" || module == "up_proj" || module == "down_proj";
  if (model.moe && of_experts)
    fail(recipe, peft,
         fmt::format("'{}' are the experts' linears, whose adapters are not planned; nearest: "
                     "target_modules = ['linear_qkv', 'linear_proj']",
                     linear));
  return module;
}

}  // namespace

void apply_adapters(const Recipe& recipe, ImportedPlan& imported) {
  if (!recipe.tree.contains("peft") || recipe.tree.at("peft").is_null()) return;
  const Json& peft = recipe.tree.at("peft");
  const std::string name = python::call_name(peft);
  if (name.substr(name.rfind('.') + 1) != "LoRA")
    fail(recipe, peft,
         "adapters of a plan are LoRA's; nearest: LoRA, or None to train all weights");
  if (peft.contains("exclude_modules") && !peft.at("exclude_modules").empty())
    fail(recipe, peft, "exclude_modules: name the linears that have adapters (target_modules)");
  const auto number = [&](const char* field, double otherwise) {
    if (!peft.contains(field)) return otherwise;
    if (!peft.at(field).is_number()) fail(recipe, peft, fmt::format("{} is no number", field));
    return peft.at(field).get<double>();
  };
  const double rank = number("dim", kDefaultRank);
  if (!(rank >= 1 && rank <= limits::kWidth)) fail(recipe, peft, "dim is the rank, at least 1");
  program::Plan& plan = imported.plan;
  models::AdapterSpec adapters{.rank = static_cast<int>(rank),
                               .alpha = number("alpha", kDefaultAlpha)};
  for (const std::string& linear : asked_linears(recipe, peft))
    adapters.modules.push_back(module_of(recipe, peft, linear, plan.model));
  if (const double dropout = number("dropout", 0); dropout > 0)
    imported.assumptions.push_back(
        fmt::format("dropout of adapters ({}): without its masks", dropout));
  plan.model.adapters = std::move(adapters);
  plan.frozen = models::all_but_adapters();
}

std::optional<std::string> adapters_text(const program::Plan& plan) {
  if (!plan.model.adapters || plan.frozen != models::all_but_adapters()) return std::nullopt;
  const models::AdapterSpec& adapters = *plan.model.adapters;
  std::string names;
  for (const std::string& module : adapters.modules) {
    const std::string_view whole = module == "up_proj" && plan.model.mlp == models::Mlp::Plain
                                       ? "gate_up_proj"
                                       : std::string_view(module);
    const auto known =
        std::ranges::find(kLinears, whole, [](const auto& each) { return each.second; });
    if (known == kLinears.end()) return std::nullopt;
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", known->first);
  }
  return fmt::format("LoRA(target_modules=[{}], dim={}, alpha={:g})", names, adapters.rank,
                     adapters.scale() * adapters.rank);
}

}  // namespace meshplan::planner::bridge
