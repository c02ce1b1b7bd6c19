// Python's own reading of exported modules.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace meshplan::planner::format_tests {

/// A module as Python parses it.
struct PythonModule {
  std::string tree;  // ast.dump without the docstring; "error: ..." if it does not parse
  std::string docstring;
};

/// Many modules, parsed by one process. Empty if there is no python3: `why_not` says so.
struct PythonModules {
  std::map<std::string, PythonModule> by_text;
  std::string why_not;
};
PythonModules parse_with_python(const std::vector<std::string>& texts);

}  // namespace meshplan::planner::format_tests
