// A training with Hugging Face's Trainer, whatever file describes it: LLaMA-Factory's or axolotl's
// YAML, or a command line. Readers bring their keys into these words; what they mean for a plan is
// said once (training.cpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/text/script_arguments.hpp"
#include "formats/text/settings.hpp"
#include "formats/trainer/adapters.hpp"
#include "planner/formats/formats.hpp"

namespace meshplan::planner::trainer {

struct Training {
  std::string model;      // a checkpoint's name or path
  std::string model_key;  // "model_name_or_path"
  /// As accelerate's YAML would say it: distributed_type, fsdp_config, deepspeed_config, ...
  Json distributed = Json::object();
  /// As transformers.TrainingArguments names them.
  ScriptArguments arguments;
  Adapters adapters;
  /// Patterns of what is not trained.
  std::vector<std::string> frozen;
  std::optional<program::ContextMethod> context;
  program::StackSettings settings;
  bool is_fp8 = false;
  bool offloads_activations = false;
  /// The optimizer runs on weights in 16 bits, without an fp32 copy, where nothing shards them.
  bool has_low_precision_state = false;
  std::vector<std::string> assumptions;
};

/// @throws ConfigError in the words of the file for what a plan cannot say
ImportedPlan plan_of_training(const ImportRequest& request, Settings& in, Training training);

/// Takes the section of PyTorch's FSDP, "fsdp" and "fsdp_config" as TrainingArguments have them.
/// @return whether there is one
bool read_fsdp_section(Settings& in, Training& training);

/// Takes `deepspeed`: the path of a ds_config.json, or what it holds. @return whether there is one
bool read_deepspeed_path(Settings& in, std::string_view key, Training& training);

/// Hands on what stands under `key` as an argument of the Trainer. @return whether it is there
bool pass_on(Settings& in, std::string_view key, std::string_view argument, Training& training);

}  // namespace meshplan::planner::trainer
