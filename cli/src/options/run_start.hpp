// What a run starts from: a checkpoint, weights from elsewhere, or nothing.
#pragma once

#include "options/run_options.hpp"

namespace meshplan::cli {

/// Values of --resume beside paths: the newest checkpoint of the folder, which must be there, or
/// may be missing. A job that is restarted by the same command needs the second.
constexpr const char* kLatest = "latest";
constexpr const char* kLatestIfAny = "latest-if-any";

/// Fills in what was not given of the checkpoints, and what the resumed run says of itself; ranks
/// get the result. @throws ConfigError for a checkpoint that is not there or damaged; IoError
void resolve_start(RunOptions& options);

/// Has the resumed run done all its steps?
bool is_done(const RunOptions& options);

/// Prints that, as the options ask for it.
void say_done(const RunOptions& options);

}  // namespace meshplan::cli
