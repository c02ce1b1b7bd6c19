// In which fields two models differ: for messages, and to tell what a choice of training is from
// what the weights depend on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/model_spec.hpp"

namespace meshplan::models {

/// Values are as in model files; "absent" where one model lacks the whole part.
struct FieldDifference {
  std::string field;  // with its path: "moe.router.score"
  std::string left;
  std::string right;
};

/// Field by field, in the order of model files; lists are compared as wholes, but named by their
/// first different entry.
std::vector<FieldDifference> differences(const ModelSpec& left, const ModelSpec& right);

/// A field that training chooses and no weight depends on: losses of the router, the capacity of
/// experts, dropout, multi-token prediction modules. `field` is as in FieldDifference.
bool is_training_choice(std::string_view field);

}  // namespace meshplan::models
