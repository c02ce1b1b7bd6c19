// What must hold of every exported file, whatever strings a plan holds.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "planner/formats/formats.hpp"

namespace meshplan::planner::format_tests {

/// Why the file is none that its target reads, or runs or shows more than it should; "" = it is
/// well. Looks at it with our own readers of YAML, JSON, Python and shell, and runs nothing.
std::string exported_fault(const ExportedFile& file);

/// "" of a file that is not there.
std::string text_of_file(const std::filesystem::path& path);

/// The documents of a YAML file with several of them.
std::vector<std::string> yaml_documents(const std::string& text);

}  // namespace meshplan::planner::format_tests
