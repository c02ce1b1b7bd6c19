// A model out of a file that others wrote, and what became of the file's keys.
#pragma once

#include <string>
#include <vector>

#include "models/model_spec.hpp"

namespace meshplan::models {

/// A key of the file and its value as JSON.
struct ReadKey {
  std::string key;  // with its path: "rope_scaling.factor"
  std::string value;
};
struct IgnoredKey {
  std::string key;
  std::string value;
  std::string reason;
};

/// A spec, and what became of the file. An assumption is one line for something that the file did
/// not say and that was filled in, or for a key that is not known: "key = value (llama default)".
struct ImportedModel {
  ModelSpec spec;
  std::string model_type;      // that it was read as: "gemma3_text"; "" for meshplan's own form
  bool is_text_tower = false;  // of a multimodal config
  std::vector<std::string> assumptions;
  std::vector<ReadKey> read;  // empty for meshplan's own form, which has no other keys
  std::vector<IgnoredKey> ignored;
};

}  // namespace meshplan::models
