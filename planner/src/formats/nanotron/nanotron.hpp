// nanotron's YAML (huggingface/nanotron at 2411b022, src/nanotron/config/config.py).
#pragma once

#include "planner/formats/formats.hpp"

namespace meshplan::planner {

std::vector<ExportedFile> write_nanotron(const ExportRequest& request);
ImportedPlan read_nanotron(const ImportRequest& request);
bool recognizes_nanotron(std::string_view name, std::string_view text);

}  // namespace meshplan::planner
