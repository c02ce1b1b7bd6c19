// Models as configurations of trainers name them: "meta-llama/Llama-3.1-8B-Instruct".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/model_spec.hpp"
#include "planner/formats/formats.hpp"

namespace meshplan::planner {

struct NamedModel {
  models::ModelSpec spec;
  std::string why;            // "preset qwen3-8b, as Qwen/Qwen3-8B is named"
  bool is_quantized = false;  // the checkpoint has its weights in few bits
  bool is_part = false;       // the text model of one that reads images, too
};

/// The model of a checkpoint, by the last part of its name or path: words that do not change the
/// shape ("Instruct", "hf") do not count. None where no preset has it.
std::optional<NamedModel> model_of_checkpoint(std::string_view name);

/// The same, or the config.json in the folder that the name stands for.
/// @param key  that names it, for messages
/// @throws ConfigError that asks for --model
NamedModel named_model(const ImportRequest& request, const std::string& name, std::string_view key);

/// What a model that no plan can say is instead: "a hybrid with layers of Mamba". Empty: not known.
std::string kind_of_checkpoint(std::string_view name);

/// The known name that is nearest.
std::string nearest_checkpoint(std::string_view name);

}  // namespace meshplan::planner
