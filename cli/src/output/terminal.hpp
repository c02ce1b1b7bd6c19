#pragma once

namespace meshplan::cli {

/// What the process found out about its surroundings; commands read it instead of the environment.
struct Terminal {
  bool redraws_stderr = false;  // a progress line may overwrite itself
  bool silent = false;          // nothing is said about progress
  bool colors_stdout = false;   // standard output shows colours
};

}  // namespace meshplan::cli
