// The training that a shell script starts: its flags, and on how many ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/megatron/reading.hpp"
#include "shell/script.hpp"

namespace meshplan::planner::megatron {

struct Launch {
  std::vector<Argument> arguments;
  std::optional<std::int64_t> ranks;
  std::string why_no_ranks;  // where they are not known
  std::vector<std::string> assumptions;
};

/// @param file  for messages
/// @throws ConfigError where the script starts nothing with Megatron's flags
Launch launch_of(const shell::Script& script, const std::string& file);

/// Flags with their operands, "--flag value" and "--flag=value".
/// @param words  behind the program's name
std::vector<Argument> arguments_of(const std::vector<shell::Value>& words, const std::string& place,
                                   std::vector<std::string>& assumptions);

}  // namespace meshplan::planner::megatron
