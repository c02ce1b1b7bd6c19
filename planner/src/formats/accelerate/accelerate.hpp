// accelerate's YAML (huggingface/accelerate at 16cb6eb8, commands/config/config_args.py): PyTorch's
// FSDP or DDP, Megatron-LM as a plugin, or DeepSpeed.
#pragma once

#include "formats/text/script_arguments.hpp"
#include "formats/text/settings.hpp"
#include "planner/formats/formats.hpp"

namespace meshplan::planner {

std::vector<ExportedFile> write_accelerate_fsdp(const ExportRequest& request);
std::vector<ExportedFile> write_accelerate_megatron(const ExportRequest& request);
std::vector<ExportedFile> write_accelerate_deepspeed(const ExportRequest& request);

/// All three: `distributed_type` tells them apart.
ImportedPlan read_accelerate(const ImportRequest& request);

/// What a configuration in accelerate's words says, into a plan whose model is set. Trainers that
/// start by themselves what accelerate would are read as its configuration.
/// @param arguments  of the program, as transformers.TrainingArguments names them
void apply_accelerate(const ImportRequest& request, Settings& in, const ScriptArguments& arguments,
                      ImportedPlan& imported);

bool recognizes_accelerate_fsdp(std::string_view name, std::string_view text);
bool recognizes_accelerate_megatron(std::string_view name, std::string_view text);
bool recognizes_accelerate_deepspeed(std::string_view name, std::string_view text);

}  // namespace meshplan::planner
