// How often to save what a failure would lose.
#pragma once

namespace meshplan {

/// Seconds of training between two checkpoints for which a run with failures is expected to end
/// soonest. Daly 2006, equation 37: exact to a few parts in a thousand; its first term is that of
/// Young 1974.
/// @param checkpoint_s  seconds that training stands still for one; at least 0
/// @param mtbf_s  mean time between failures of the job in seconds, more than 0
double best_checkpoint_interval_s(double checkpoint_s, double mtbf_s);

}  // namespace meshplan
