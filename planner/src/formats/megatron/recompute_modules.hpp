// Megatron-LM's names of the modules that --recompute-modules lists.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "models/module.hpp"

namespace meshplan::planner::megatron {

/// megatron/core/transformer/transformer_config.py, recompute_modules; those that a plan has, too.
/// Norms: Megatron's are the two before attention and MLP, latents have none of their own there.
constexpr std::array<std::pair<std::string_view, models::Module>, 7> kRecomputeModules = {
    {{"core_attn", models::Module::Attention},
     {"moe_act", models::Module::MoeAct},
     {"layernorm", models::Module::Norms},
     {"mla_up_proj", models::Module::MlaUpProj},
     {"mlp", models::Module::Mlp},
     {"moe", models::Module::Moe},
     {"shared_experts", models::Module::SharedExperts}}};

inline std::optional<models::Module> module_of(std::string_view name) {
  for (const auto& [known, module] : kRecomputeModules)
    if (known == name) return module;
  return std::nullopt;
}

}  // namespace meshplan::planner::megatron
