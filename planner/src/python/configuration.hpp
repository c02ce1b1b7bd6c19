// A Python function that returns a configuration, read without running it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "python/interpreter.hpp"
#include "python/tree.hpp"

namespace meshplan::planner::python {

struct Configuration {
  std::string function;
  Json tree;     // what it returns, as far as somebody set it; python/tree.hpp says how calls look
  Json initial;  // with what the classes of its files give the rest
  std::vector<std::string> classes;  // that it is an instance of, as far as they are known
  std::map<std::string, std::vector<std::string>> field_classes;  // likewise of its fields
  std::vector<std::string> notes;              // "FILE:12: 'while ...' is not understood"
  std::map<std::string, std::string> imports;  // name -> module, of "from MODULE import NAME"
};

struct ReadingOptions {
  std::vector<std::string> transforms = {};  // as of Interpreter
  GivenFields given_fields = {};             // likewise
  std::map<std::string, Value> results = {};
  std::vector<std::string> opaque = {};
  /// Arguments of the function by its parameters' names.
  std::vector<std::pair<std::string, Value>> arguments = {};
};

/// Follows the function's statements, and those of what it calls and imports as far as their files
/// are there; what depends on anything else is an unknown value.
/// @param function  empty: the one function that no other of the file calls
/// @param read_file  files that it imports, by path from the same folder as `file`; null: none
/// @throws ConfigError "FILE:LINE: ..." for what is no Python, beyond the interpreter's bounds,
/// where it is not clear which function is meant, and for an argument that it has not
Configuration read_configuration(std::string_view text, const std::string& file,
                                 const std::string& function, const ReadFile& read_file = {},
                                 const ReadingOptions& options = {});

}  // namespace meshplan::planner::python
