#pragma once

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

#include "program/schedule/schedule.hpp"

namespace meshplan::sim {

inline constexpr double kNever = std::numeric_limits<double>::infinity();  // a time

/// Seconds of a chunk's tasks, without transfers. The first one of a kind writes gradients, the
/// others add to them.
struct SolverChunk {
  double forward = 0;
  double backward_first = 0;
  double backward = 0;
  double input = 0;  // of a split backward
  double weight_first = 0;
  double weight = 0;
  double overlap_saves = 0;  // of forward + backward, where they run together
  double prelude = 0;        // of a backward: what it does before it needs its input
  double reduction = 0;      // at the end of its last task that adds to gradients
  bool has_backward = true;  // false: it and all before it are frozen, and no gradient comes
};

/// One stage as the task solver sees it.
struct SolverStage {
  double ready = 0;  // when it can begin its first task
  std::vector<SolverChunk> chunks;
  int host = 0;      // stages with the same number share its cores
  double cores = 0;  // that its ranks on the host hold while they compute
};

struct SolverInput {
  std::vector<SolverStage> stages;
  std::vector<double> transfers;  // of a micro-batch from each stage but the last to the next
  double wrap_transfer = 0;       // from the last stage to the first, or back
  bool receiver_copies = false;   // the receiving rank is busy with the transfer
  double wake = 0;                // after every wait for a transfer
  double host_cores = 0;  // shared by the stages of a host; 0 = every rank has its own device

  /// Seconds in which a micro-batch travels; 0 within a stage.
  double transfer_between(int stage, int other) const {
    if (stage == other) return 0;
    const bool wraps = stages.size() > 2 && std::abs(stage - other) > 1;
    return wraps ? wrap_transfer : transfers[static_cast<std::size_t>(std::min(stage, other))];
  }
};

struct SolverOutput {
  std::vector<std::vector<double>> begin;  // of each stage's tasks
  /// Begin of the last task of each stage and chunk that adds to gradients of weights.
  std::vector<std::vector<double>> last_gradient_begin;
  std::vector<double> end;   // of each stage's last task
  std::vector<double> busy;  // of each stage: inside tasks, without waits
};

/// Plays the tasks of a pipeline: each stage its own list in order, a forward after the virtual
/// stage before, a backward after the one behind (the recurrence of Narayanan et al. 2021,
/// section 2.2). Stages that share cores are slowed equally while their tasks overlap.
SolverOutput solve_tasks(const program::Schedule& schedule, const SolverInput& input);

}  // namespace meshplan::sim
