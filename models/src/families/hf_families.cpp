// All families of Hugging Face configs, and the defaults of their classes.
#include <algorithm>
#include <span>

#include "core/embedded_file.hpp"
#include "core/error.hpp"
#include "families/families.hpp"
#include "hf/family_parts.hpp"

namespace meshplan::models {

std::span<const EmbeddedFile> hugging_face_presets();  // generated from hugging_face_defaults.json

std::vector<HfFamily> hf_families() {
  std::vector<HfFamily> all;
  for (const auto& families :
       {llama_families(), gpt_families(), qwen_families(), gemma_families(), expert_families(),
        latent_families(), recurrent_families(), encoder_families()})
    all.insert(all.end(), families.begin(), families.end());
  std::ranges::sort(all, {}, &HfFamily::model_type);
  return all;
}

Json hf_defaults(std::string_view model_type) {
  static const Json all = Json::parse(hugging_face_presets().front().text);
  const auto found = all.find(std::string(model_type));
  require_invariant(found != all.end(), "a family without defaults");
  return *found;
}

}  // namespace meshplan::models
