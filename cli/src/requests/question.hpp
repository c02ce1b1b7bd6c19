// A request of the command as other programs ask it: words in, JSON out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "options/command_line.hpp"
#include "output/terminal.hpp"
#include "planner/search/search.hpp"

namespace meshplan::cli {

/// Says nothing: what asks in place of the command has no terminal.
constexpr Terminal kSilent{.redraws_stderr = false, .silent = true};

struct Question {
  std::string name;  // of the subcommand
  std::string summary;
  std::function<void(Command&)> declare;              // its options
  std::function<std::string(const Command&)> answer;  // as --json prints it, once they are parsed
};

/// What runs the bodies of a search, for the number of threads that was asked for.
using Threads = std::function<planner::ParallelFor(int)>;

/// @param words  options as the command line spells them
/// @throws ConfigError for words that the command would not take, and as the request does
std::string ask(const Question& question, std::vector<std::string> words);

/// The options of a question, in the order of their declaration.
std::vector<OptionInfo> options_of(const Question& question);

}  // namespace meshplan::cli
