// Months of failures, played: the same costs as the closed form, with failures, repairs and smaller
// worlds one after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/failures/failure_model.hpp"

namespace meshplan::planner {

struct PlayOptions {
  double days = 30;  // of a trial
  int trials = 200;
  std::uint64_t seed = 1;
};
/// Trials, and failures in all of them, that a play may have.
constexpr int kMostTrials = 100'000;
constexpr double kMostPlayedFailures = 2e7;
constexpr double kMostDays = 36'525;

/// Parts of a trial's time; they sum to 1.
struct TimeParts {
  double useful = 0;   // training that no failure undid: the goodput
  double lost = 0;     // training that had to be done again
  double saving = 0;   // checkpoints that stop training
  double restart = 0;  // detection, start and loading, also where a node joins again
  double smaller = 0;  // what fewer nodes do not do, and waiting where they hold no replica
};

/// What the trials of one job say.
struct FailurePlay {
  TimeParts parts;            // means
  double low = 0, high = 0;   // goodput of 9 of 10 trials: 5 % are below and 5 % above
  double standard_error = 0;  // of the mean goodput
  double failures = 0;        // mean, of a trial
  double paid_goodput = 0;    // useful time over device time, that of spares included
  double effective_s(double step_time_s) const { return step_time_s / parts.useful; }
};

/// Failures come to each running node with exponential gaps, also while the job restarts; a node
/// that failed is back after the repair time. Spare nodes do not fail. A node that lets the job
/// grow joins at the next checkpoint. The same options give the same answer on every machine.
/// @param interval_s  of training between checkpoints
/// @throws ConfigError for days, trials or failures that are not positive or too many
FailurePlay play_failures(const FailureCosts& costs, double interval_s, const PlayOptions& options);

}  // namespace meshplan::planner
