#pragma once

namespace meshplan::runtime {

/// What is watched of the steps of a run (docs/watching.md).
struct WatchOptions {
  /// Steps from one whose operations are timed to the next; 0 = none. A timed step replays nothing
  /// from a capture.
  int time_every = 1;
  double loss_spike = 6;           // LossSpikes; 0 = never
  double slow_rank = 1.5;          // SlowRanks; 0 = never
  double job_peak_flop_per_s = 0;  // of all ranks together; 0 = not known
};

}  // namespace meshplan::runtime
