// Goodput of a job that fails at random and goes on from checkpoints: the closed form.
#pragma once

namespace meshplan::planner {

/// Seconds that decide what failures cost a job.
struct FailureTimes {
  double mtbf_s = 0;     // mean time between failures of the whole job, > 0
  double stall_s = 0;    // that a checkpoint stops training
  double lag_s = 0;      // from the end of the stall until the job could restart from it
  double restart_s = 0;  // from a failure until training goes on from the last checkpoint
};

/// Useful time over expected time, with a checkpoint after every `interval_s` of training. A run of
/// work T takes M exp(R / M) (exp((t + d) / M) - 1) T / t (Daly 2006, equation 20), for failures
/// with exponential gaps that hit restarts, too. A checkpoint can be loaded only `lag_s` after its
/// stall, so each failure loses that much work more; it counts into R, which is exact where lag is
/// far below M.
/// @param interval_s  > 0
/// @returns 0 if restarts and intervals are so much longer than M that the run never ends
double checkpoint_goodput(const FailureTimes& times, double interval_s);

}  // namespace meshplan::planner
