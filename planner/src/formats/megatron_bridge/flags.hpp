// What a recipe leaves in its ConfigContainer, as flags of Megatron-LM: both configure
// Megatron-Core.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/megatron/reading.hpp"
#include "formats/megatron_bridge/recipe.hpp"

namespace meshplan::planner::bridge {

struct RecipeFlags {
  std::vector<megatron::Argument> arguments;
  std::map<std::string, std::string> fields;  // of each flag: "optimizer.lr = 0.0003"
  std::optional<models::ModelSpec> model;     // that flags have no words for
  double dropout = 0;                         // of that model's hidden states
  bool fp8_attention = false;
  std::vector<std::string> assumptions;
  std::vector<std::string> ignored;
};

/// @param model  given beside the recipe
/// @throws ConfigError for what is not understood and changes the plan, naming file, field and
/// value, and for what trains something else than all weights of a decoder of text
RecipeFlags flags_of(const Recipe& recipe, const std::optional<models::ModelSpec>& model);

}  // namespace meshplan::planner::bridge
