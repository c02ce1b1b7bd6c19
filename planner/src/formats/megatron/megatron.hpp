// Megatron-LM: launch scripts from plans, and plans from launch scripts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/formats/formats.hpp"

namespace meshplan::planner {

std::vector<ExportedFile> write_megatron(const ExportRequest& request);
std::vector<ExportedFile> write_megatron_bridge(const ExportRequest& request);
ImportedPlan read_megatron(const ImportRequest& request);
bool recognizes_megatron(std::string_view name, std::string_view text);
ImportedPlan read_megatron_bridge(const ImportRequest& request);
bool recognizes_megatron_bridge(std::string_view name, std::string_view text);

/// @throws ConfigError naming everything that Megatron-LM, and so Megatron-Bridge, has no words for
void require_expressible_by_megatron(const program::Plan& plan);
/// Variables that a launch script exports, with a comment; empty where none is needed.
std::string megatron_environment(const ExportRequest& request);

}  // namespace meshplan::planner
