// All families of Hugging Face configurations.
#pragma once

#include <vector>

#include "hf/hf_config.hpp"

namespace meshplan::models {

/// Families by what they came of.
std::vector<HfFamily> llama_families();
std::vector<HfFamily> gpt_families();
std::vector<HfFamily> qwen_families();
std::vector<HfFamily> gemma_families();
std::vector<HfFamily> expert_families();
std::vector<HfFamily> latent_families();
std::vector<HfFamily> recurrent_families();
std::vector<HfFamily> encoder_families();

/// Sorted by model_type.
std::vector<HfFamily> hf_families();

/// Defaults of a model type's class in transformers, for keys that a file may leave out
/// (hugging_face_defaults.json).
Json hf_defaults(std::string_view model_type);

}  // namespace meshplan::models
