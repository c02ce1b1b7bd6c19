// The training that a shell script starts: its flags, and on how many ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/megatron/reading.hpp"
#include "planner/formats/formats.hpp"
#include "shell/script.hpp"

namespace meshplan::planner::megatron {

struct Launch {
  std::vector<Argument> arguments;
  std::optional<std::int64_t> ranks;
  std::string why_no_ranks;  // where they are not known
  std::string program;       // "pretrain_gpt.py"; empty where none is named
  /// Words that are not known and may hold flags.
  std::vector<shell::Unknown> undecided;
  std::vector<std::string> assumptions;
};

/// @param file  for messages
/// @throws ConfigError where the script starts nothing with Megatron's flags
Launch launch_of(const shell::Script& script, const std::string& file);

/// Flags with their operands, "--flag value" and "--flag=value".
/// @param words  behind the program's name
void take_arguments(const std::vector<shell::Value>& words, const std::string& place,
                    Launch& launch);

}  // namespace meshplan::planner::megatron

namespace meshplan::planner {

/// The plan of a training with Megatron's flags.
/// @param script  what else its files say: assumptions, arguments that are missing
/// @throws ConfigError
ImportedPlan read_megatron_launch(const ImportRequest& request, const shell::Script& script,
                                  megatron::Launch launch);

}  // namespace meshplan::planner
