// A pipeline schedule is data: generators emit it, one validator checks it, the simulator and the
// runtime walk it.
#pragma once

#include <string>
#include <vector>

namespace meshplan::program {

enum class TaskKind { Forward, BackwardFull, BackwardInput, BackwardWeight, Overlapped };

/// Work of one stage on one micro-batch. `chunk` is the virtual stage held by this rank.
/// Overlapped runs this forward together with the backward of (`backward_microbatch`,
/// `backward_chunk`).
struct Task {
  TaskKind kind = TaskKind::Forward;
  int microbatch = 0;
  int chunk = 0;
  int backward_microbatch = 0;
  int backward_chunk = 0;
  bool operator==(const Task&) const = default;
};

/// tasks[stage], in execution order.
struct Schedule {
  std::vector<std::vector<Task>> tasks;
  bool operator==(const Schedule&) const = default;
};

enum class ScheduleKind { GPipe, OneFOneB };

/// All forwards, then all backwards. Huang et al. 2019, section 2.3.
Schedule gpipe(int num_stages, int num_microbatches);

/// Warm-up of pp - 1 - stage forwards, then one forward and one backward in turn.
/// Narayanan et al. 2021 (PipeDream-flush), section 2.2.1.
Schedule one_f_one_b(int num_stages, int num_microbatches);

Schedule make_schedule(ScheduleKind kind, int num_stages, int num_microbatches);

/// The most micro-batches whose activations `stage` holds at once.
int max_in_flight(const Schedule& schedule, int stage);

/// Every rule that `schedule` breaks, in words; empty if it is valid: each forward and backward
/// exactly once per micro-batch and chunk, forward before backward, and no circular wait between
/// stages (each stage runs its list in order; forward of stage s waits for stage s - 1, backward
/// for stage s + 1).
std::vector<std::string> schedule_errors(const Schedule& schedule, int num_microbatches,
                                         int num_chunks = 1);

}  // namespace meshplan::program
