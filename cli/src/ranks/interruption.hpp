// What a run says when signals have ended it.
#pragma once

#include <string>
#include <vector>

#include "runtime/launch/launch.hpp"

namespace meshplan::cli {

/// The same run, going on from `checkpoint`: a line for a shell.
std::string resuming_command(const std::vector<std::string>& command,
                             const std::string& checkpoint);

/// Lines: by what, after which step, what was saved, and how to go on.
/// @param folder  of the run's checkpoints; "" = none are saved  @param command  that started it
std::string interruption_text(const runtime::Interruption& interruption, const std::string& folder,
                              const std::vector<std::string>& command);

}  // namespace meshplan::cli
