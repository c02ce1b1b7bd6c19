// A shell script read without running it: its variables, and the commands that it would start.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shell/value.hpp"

namespace meshplan::planner::shell {

/// A program that the script starts, with its expanded words.
struct ScriptCommand {
  std::vector<Value> words;
  std::string file;
  int line = 0;
};

struct Script {
  std::vector<ScriptCommand> commands;   // in order; echo, mkdir and their like left out
  Variables variables;                   // at the end
  std::vector<std::string> order;        // names of variables as they were first set
  std::vector<std::string> directives;   // "--nodes=4" of "#SBATCH --nodes=4"
  std::vector<std::string> assumptions;  // branches that could not be decided, "FILE:LINE: ..."
};

/// Assignments, arrays, parameter expansions, arithmetic, if and case with tests of text and
/// numbers, functions, and files of `files` that it sources. Commands are not run: where a
/// condition needs one, or a file, its branch is left out and listed.
/// @param main  of `files`
/// @param environment  what the caller of the script sets; "1" is its first argument
/// @throws ConfigError "FILE:LINE: ..." for what is no shell script, or takes too long to read
Script read_script(const std::map<std::string, std::string>& files, const std::string& main,
                   const std::map<std::string, std::string>& environment);

}  // namespace meshplan::planner::shell
