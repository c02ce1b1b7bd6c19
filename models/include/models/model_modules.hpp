// Which modules a model's layers have.
#pragma once

#include <string_view>

#include "models/model_spec.hpp"
#include "models/module.hpp"

namespace meshplan::models {

bool has_module(const ModelSpec& model, Module module);

/// What a model has to have for its layers to have the module: "latent attention", "experts",
/// "shared experts"; empty if all have it.
std::string_view needed_for(Module module);

}  // namespace meshplan::models
