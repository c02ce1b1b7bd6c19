// How often to save what a failure would lose.
#pragma once

namespace meshplan {

/// Seconds of training between two checkpoints for which a run with failures is expected to end
/// soonest. Daly 2006, equation 37: exact to a few parts in a thousand; its first term is that of
/// Young 1974.
/// @param checkpoint_s  seconds that training stands still for one; at least 0
/// @param mtbf_s  mean time between failures of the job in seconds, more than 0
double best_checkpoint_interval_s(double checkpoint_s, double mtbf_s);

/// Seconds that a run spends on a checkpoint and on a step.
struct CheckpointTimes {
  double stall_s = 0;     // training stands still
  double complete_s = 0;  // from there until the checkpoint is complete, beside training
  double step_s = 0;
};

/// The shortest interval in seconds: a step, and the checkpoint before must be complete.
double least_checkpoint_interval_s(const CheckpointTimes& times);

/// best_checkpoint_interval_s, but not less than the shortest interval.
double checkpoint_interval_s(const CheckpointTimes& times, double mtbf_s);

/// The same in whole steps, rounded up; at least 1.
/// @param times  with step_s > 0
int checkpoint_interval_steps(const CheckpointTimes& times, double mtbf_s);

}  // namespace meshplan
