// When each task of a pipeline schedule runs, if messages take no time: for looking at schedules.
#pragma once

#include <vector>

#include "program/schedule/schedule.hpp"

namespace meshplan::sim {

/// Durations of one chunk's tasks. A full backward takes input + weight, an overlapped pair the sum
/// of its parts.
struct TaskDurations {
  double forward = 1;
  double input = 1;
  double weight = 1;
};

struct Timeline {
  std::vector<std::vector<double>> begin;  // of each stage's tasks
  std::vector<double> busy;                // of each stage
  double end = 0;                          // of the last task
  /// Part of the time of all stages in which they wait.
  double bubble_fraction() const;
};

/// @param schedule  valid
Timeline timeline(const program::Schedule& schedule, const TaskDurations& durations = {});

}  // namespace meshplan::sim
