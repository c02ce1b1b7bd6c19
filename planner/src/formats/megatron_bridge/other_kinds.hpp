// Recipes that are not read, and why.
#pragma once

#include "formats/megatron_bridge/recipe.hpp"

namespace meshplan::planner::bridge {

/// @throws ConfigError where the function returns no ConfigContainer, or a call that is not among
/// the files may have changed what is read
void require_understood(const Recipe& recipe);

/// @param given  a model was given beside the recipe
/// @throws ConfigError for models of images or sound, hybrids with Mamba, and a model
/// that nothing describes
void require_decoder_of_text(const Recipe& recipe, bool given);

}  // namespace meshplan::planner::bridge
