// A Python function that returns a configuration, read without running it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "python/expression.hpp"

namespace meshplan::planner::python {

struct Configuration {
  std::string function;
  Json tree;                       // what it returns; python/expression.hpp says how calls look
  std::vector<std::string> notes;  // "FILE:12: 'for ...' is not understood"
  std::map<std::string, std::string> imports;  // name -> module, of "from MODULE import NAME"
};

/// Follows assignments to names and attributes, functions of the same file, and constants of the
/// module. Branches and loops are not followed and are noted.
/// @param function  empty: the one function that no other of the file calls
/// @throws ConfigError "FILE:LINE: ..." for what is no Python, and where it is not clear which
/// function is meant
Configuration read_configuration(std::string_view text, const std::string& file,
                                 const std::string& function);

}  // namespace meshplan::planner::python
