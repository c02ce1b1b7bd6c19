// A model as torchtitan's files build it, layer by layer, and the spec of it.
#pragma once

#include <string>
#include <vector>

#include "core/json_fields.hpp"
#include "models/model_spec.hpp"

namespace meshplan::planner::torchtitan {

struct DescribedModel {
  models::ModelSpec spec;
  std::vector<std::string> converters;   // that change its modules: "Float8LinearConverter.Config"
  std::vector<std::string> assumptions;  // what a spec has no word for
};

/// Names of what changes the model's modules. @throws ConfigError for one that is not understood
std::vector<std::string> converters_of(const Json& tree, const std::string& where);

/// @param tree  the `model` of a ModelSpec, as python/tree.hpp says calls look
/// @param name  for what is no preset
/// @param where  for messages
/// @throws ConfigError for parts that are not understood or that no spec has, and layers that
/// differ in more than a spec can say
DescribedModel described_model(const Json& tree, const std::string& name, const std::string& where);

}  // namespace meshplan::planner::torchtitan
