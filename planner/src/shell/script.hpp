// A shell script read without running it: its variables, and the commands that it would start.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shell/value.hpp"

namespace meshplan::planner::shell {

/// A program that the script starts, with its expanded words. Behind a launcher that takes a script
/// ("srun bash -c '...'"), those of the script, with the launcher's in front.
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
  /// What the script calls its arguments, by their number: {"3", "MODEL_SIZE"}.
  std::map<std::string, std::string> argument_names;
  /// What unknown variables and arguments are compared with.
  std::map<std::string, std::vector<std::string>> choices;
  /// What decides which file it sources that was not found.
  std::set<std::string> file_needs;
  int last_argument = 0;  // the highest number that the script asks for
};

/// The text of a file that a script sources, by its path beside the script; none where there is
/// none.
using OpenFile = std::function<std::optional<std::string>(const std::string& path)>;

/// Assignments, arrays, parameter expansions, arithmetic, if and case with tests of text and
/// numbers, loops, functions, scripts in strings and here-documents, and files of `files` that it
/// sources. Commands are not run, but for the output of some that need no machine (basename, seq):
/// where a condition needs one, or a file, its branch is left out and listed. What a branch would
/// set whose condition needs an argument or variable that is not given, is unknown afterwards.
/// @param main  of `files`
/// @param environment  what the caller of the script sets; "1" is its first argument
/// @param open  looks for files that are not among `files`; may be empty
/// @throws ConfigError "FILE:LINE: ..." for what is no shell script, or takes too long to read
Script read_script(const std::map<std::string, std::string>& files, const std::string& main,
                   const std::map<std::string, std::string>& environment,
                   const OpenFile& open = {});

/// A command line's words as a shell divides them, with quotes taken away. @throws ConfigError
std::vector<std::string> shell_words(std::string_view line);

}  // namespace meshplan::planner::shell
