// accelerate's YAML (huggingface/accelerate at 16cb6eb8, commands/config/config_args.py): PyTorch's
// FSDP or DDP, Megatron-LM as a plugin, or DeepSpeed.
#pragma once

#include "planner/formats/formats.hpp"

namespace meshplan::planner {

std::vector<ExportedFile> write_accelerate_fsdp(const ExportRequest& request);
std::vector<ExportedFile> write_accelerate_megatron(const ExportRequest& request);
std::vector<ExportedFile> write_accelerate_deepspeed(const ExportRequest& request);

/// All three: `distributed_type` tells them apart.
ImportedPlan read_accelerate(const ImportRequest& request);

bool recognizes_accelerate_fsdp(std::string_view name, std::string_view text);
bool recognizes_accelerate_megatron(std::string_view name, std::string_view text);
bool recognizes_accelerate_deepspeed(std::string_view name, std::string_view text);

}  // namespace meshplan::planner
