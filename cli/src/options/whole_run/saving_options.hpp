// How often a run saves: options of `run`, and of `simulate`, which says what that costs.
#pragma once

#include <optional>
#include <string>

#include "options/command_line.hpp"
#include "planner/failures/saving.hpp"

namespace meshplan::cli {

/// Value of --checkpoint-every beside numbers.
constexpr const char* kAutoInterval = "auto";

struct SavingOptions {
  std::optional<std::string> checkpoint_every;  // steps, or kAutoInterval
  std::optional<int> memory_every;
  bool is_auto() const { return checkpoint_every == kAutoInterval; }
};

/// --checkpoint-every and --memory-every
void add_saving_options(Command& command, SavingOptions& options);

/// @param mtbf  the option --mtbf, which `auto` needs
/// @throws ConfigError for what is neither a number of steps nor auto, for auto without --mtbf, and
/// for an MTBF without a unit
planner::SavingIntervals saving_intervals(const SavingOptions& options,
                                          const std::optional<std::string>& mtbf);

}  // namespace meshplan::cli
