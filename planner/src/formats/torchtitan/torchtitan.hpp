// torchtitan (pytorch/torchtitan at b5bcd76c): configurations in Python, and the TOML files from
// before February 2026.
#pragma once

#include "planner/formats/formats.hpp"

namespace meshplan::planner {

std::vector<ExportedFile> write_torchtitan(const ExportRequest& request);
/// `request.main` may name a function of the file: "plans.py:llama3_70b".
ImportedPlan read_torchtitan(const ImportRequest& request);
bool recognizes_torchtitan(std::string_view name, std::string_view text);

}  // namespace meshplan::planner
