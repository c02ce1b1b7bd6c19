#pragma once

#include <string>

#include "core/error.hpp"
#include "models/model_spec.hpp"

namespace meshplan::models {

/// The message with which validation refuses the spec; empty if it does not.
inline std::string refusal(const ModelSpec& spec) {
  try {
    validate(spec, "model.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace meshplan::models
