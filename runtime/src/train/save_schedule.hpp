// When checkpoints go to the disk.
#pragma once

#include <optional>
#include <string>

namespace meshplan::runtime {

/// Every so many steps; or, given the job's mean time between failures, at the interval for which
/// it is expected to end soonest (checkpoint_interval_steps), from what saves and steps take here.
/// Until one save is measured the second step is due.
class SaveSchedule {
 public:
  /// @param every  steps; 0 = never; not used with `mtbf_s`
  SaveSchedule(int every, std::optional<double> mtbf_s, int first_step);

  /// Whether `steps_done` is measured on one rank, which the others follow.
  bool is_measured() const { return mtbf_s_.has_value(); }
  bool is_due(int steps_done) const;

  /// A step of the run took so long. Steps differ: the mean of the last ones counts.
  void add_step(double seconds);
  /// A save after `step` held training up for `stall_s`, and is going on.
  void begin(int step, double stall_s);
  /// It is complete. @param write_s  seconds in the background
  /// @returns a line about the interval if it has changed by a tenth or more; empty otherwise
  std::string complete(double write_s);
  bool is_open() const { return is_open_; }

 private:
  int every_;
  std::optional<double> mtbf_s_;
  double step_s_ = 0;  // mean of the last steps
  double stall_s_ = 0;
  int saved_step_ = 0;
  int next_ = 0;
  int said_ = 0;  // steps of the interval that was said last
  bool is_open_ = false;
};

}  // namespace meshplan::runtime
