// 1F1B and GPipe micro-batch by micro-batch: what solve_tasks plays task by task, in time that does
// not grow with the number of micro-batches once a pipeline runs evenly.
#pragma once

#include <vector>

#include "program/schedule/schedule.hpp"
#include "schedules/task_solver.hpp"

namespace meshplan::sim {

/// Can a WaveSolver play this schedule?
bool has_waves(program::ScheduleKind kind, int num_chunks);

/// The pipeline that waves are solved of, but for when its stages are ready.
struct WavePipeline {
  program::ScheduleKind kind{};
  int num_microbatches = 0;
  std::vector<double> transfers;  // seconds; from each stage but the last to the next
  // Seconds of each stage's tasks.
  std::vector<double> forward;
  std::vector<double> backward_first;
  std::vector<double> backward;
  std::vector<double>
      gradient_delay;  // after the end of the backward behind; -inf = waits for none
  bool operator==(const WavePipeline&) const = default;

  int num_stages() const { return static_cast<int>(forward.size()); }
};

/// solve_tasks without `begin`, for stages of one chunk that share no cores and do not copy what
/// they receive; exact but for rounding.
///
/// Both schedules are recurrences of maxima and sums in which every micro-batch does the same. When
/// some in a row have moved every stage on by the same time as as many before them did (1F1B: all
/// stages by one time, GPipe: no stage by less than its predecessor's), so do all that follow
/// (Baccelli et al. 1992, Synchronization and Linearity, section 3.7), and they are skipped.
class WaveSolver {
 public:
  /// `out` is overwritten; its memory is used again. A pipeline that was solved the last time, too,
  /// is only shifted to when it is ready.
  void solve(program::ScheduleKind kind, const SolverInput& input, int num_microbatches,
             SolverOutput& out);

 private:
  WavePipeline pipeline_, solved_;
  std::vector<double> end_;  // of each stage of `solved_`, if all are ready in time, the first at 0
};

}  // namespace meshplan::sim
