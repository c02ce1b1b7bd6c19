// Megatron-LM: launch scripts from plans, and plans from launch scripts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/formats/formats.hpp"

namespace meshplan::planner {

std::vector<ExportedFile> write_megatron(const ExportRequest& request);
ImportedPlan read_megatron(const ImportRequest& request);
bool recognizes_megatron(std::string_view name, std::string_view text);

}  // namespace meshplan::planner
