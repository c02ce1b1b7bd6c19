// Import of Hugging Face config.json. Field map: ecosystem notes of the project, checked against
// the configuration classes of transformers 4 and 5.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/imported_model.hpp"

namespace meshplan::models {

/// The `model_type`s that can be imported, sorted.
std::vector<std::string> hugging_face_model_types();

/// A multimodal config yields its text model. Keys that do not describe the model are listed as
/// ignored, with the reason; of those that do, a wrong type or an unsupported value is an error.
/// @param assume  model_type to read the file as when its own is missing or unknown; "" = none
/// @throws ConfigError naming file, key, value and rule
ImportedModel import_hugging_face(std::string_view text, const std::string& file,
                                  const std::string& assume = "");

/// Reads meshplan's own form (it has "schema_version") or a Hugging Face config.
/// @throws ConfigError as above, or if the text is neither
ImportedModel load_model(std::string_view text, const std::string& file,
                         const std::string& assume = "");

/// The config.json of a model; importing it gives the model back, but for its name and for choices
/// of training that the model type has no key for (spec_difference.hpp).
/// @throws ConfigError for a model_type that cannot be written, or naming what it cannot express
std::string export_hugging_face(const ModelSpec& spec, const std::string& model_type);

/// The first model type that can express the model. @throws ConfigError if there is none
std::string matching_model_type(const ModelSpec& spec);

}  // namespace meshplan::models
