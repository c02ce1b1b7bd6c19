// What a run starts from: a checkpoint, weights from elsewhere, or nothing.
#pragma once

#include "options/run/run_options.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/job_layout.hpp"

namespace meshplan::cli {

/// Values of --resume beside paths: the newest checkpoint of the folder, which must be there, or
/// may be missing. A job that is restarted by the same command needs the second.
constexpr const char* kLatest = "latest";
constexpr const char* kLatestIfAny = "latest-if-any";

/// Is it left to the run from which checkpoint it goes on?
bool resumes_newest(const RunOptions& options);

/// Fills in what was not given of the checkpoints, and what the resumed run says of itself; ranks
/// get the result. @throws ConfigError for a checkpoint that is not there or damaged; IoError
void resolve_start(RunOptions& options);

/// Collective, on ranks, after resolve_start: decides whether a state in the memory of the job's
/// nodes is newer than the checkpoint on the disk, and continues it then.
/// @throws ConfigError if ranks find different checkpoints, or neither is there but must be
void take_newest_state(RunOptions& options, runtime::Communicator& world,
                       const runtime::JobLayout& layout);

/// Does the run go on from an earlier state?
bool continues(const RunOptions& options);

/// Has the resumed run done all its steps?
bool is_done(const RunOptions& options);

/// Prints that, as the options ask for it.
void say_done(const RunOptions& options);

/// Where checkpoints are saved; "" = nowhere.
std::string folder_to_save_to(const RunOptions& options);

}  // namespace meshplan::cli
