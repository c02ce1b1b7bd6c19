// Configurations of programs that train with Hugging Face's Trainer: LLaMA-Factory
// (hiyouga/LLaMA-Factory, examples of August 2026, both its generations) and axolotl
// (axolotl-ai-cloud/axolotl, of August 2026).
#pragma once

#include "planner/formats/formats.hpp"

namespace meshplan::planner {

ImportedPlan read_llama_factory(const ImportRequest& request);
bool recognizes_llama_factory(std::string_view name, std::string_view text);

/// Shell scripts that start one of these, examples of transformers or TRL, or DeepSpeed-Chat.
ImportedPlan read_trainer_script(const ImportRequest& request);
bool recognizes_trainer_script(std::string_view name, std::string_view text);

ImportedPlan read_axolotl(const ImportRequest& request);
bool recognizes_axolotl(std::string_view name, std::string_view text);

}  // namespace meshplan::planner
