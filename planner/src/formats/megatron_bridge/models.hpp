// Models by their names on the Hugging Face hub, which recipes build them from.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/model_spec.hpp"

namespace meshplan::planner::bridge {

struct HubModel {
  std::optional<models::ModelSpec> spec;  // absent: it is not known, or no decoder of text
  std::string other;  // what it is instead: "a hybrid with layers of Mamba"; empty: not known
};

/// @param name  "meta-llama/Llama-3.2-1B"; endings such as -Instruct change no shape
HubModel hub_model(const std::string& name);

/// The known name that is nearest.
std::string nearest_hub_model(const std::string& name);

}  // namespace meshplan::planner::bridge
