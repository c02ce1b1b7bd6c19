// Adapters of a recipe: peft = LoRA(dim=16, target_modules=[...]).
#pragma once

#include <optional>
#include <string>

#include "formats/megatron_bridge/recipe.hpp"

namespace meshplan::planner::bridge {

/// The plan with the recipe's adapters over frozen weights; as it is where there are none.
/// @throws ConfigError for what is no LoRA, and for linears that a plan has no adapters beside
void apply_adapters(const Recipe& recipe, ImportedPlan& imported);

/// The value of a recipe's peft, "LoRA(dim=16, ...)"; nothing of adapters that a recipe cannot ask
/// for: those of parts of fused linears, and beside weights that are trained.
std::optional<std::string> adapters_text(const program::Plan& plan);

}  // namespace meshplan::planner::bridge
