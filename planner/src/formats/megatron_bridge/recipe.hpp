// A recipe of Megatron-Bridge: what its function leaves in the ConfigContainer that it returns.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json_fields.hpp"
#include "planner/formats/formats.hpp"

namespace meshplan::planner::bridge {

struct Recipe {
  std::string file;
  std::string function;
  Json given;                              // what somebody set; python/tree.hpp says how calls look
  Json tree;                               // with what classes of the files give the rest
  std::vector<std::string> classes;        // of the returned value
  std::vector<std::string> model_classes;  // of its model, as far as they are known
  std::vector<std::string> notes;          // as python::Configuration has them
  std::string hub_name;  // of the model on the Hugging Face hub; empty: it is built

  /// Is everything among the files that it starts from?
  bool is_whole() const;
};

/// @throws ConfigError where it is no recipe, and for what is no Python
Recipe read_recipe(const ImportRequest& request);

}  // namespace meshplan::planner::bridge
