#pragma once

#include <vector>

#include "program/schedule.hpp"

namespace meshplan::sim {

/// One stage as the task solver sees it.
struct SolverStage {
  double ready = 0;    // when it can begin its first task
  double forward = 0;  // seconds of a task, without transfers
  double backward_first = 0;
  double backward = 0;
  double prelude = 0;  // of a backward: what it does before it needs its input
  int host = 0;        // stages with the same number share its cores
  double cores = 0;    // that its ranks on the host hold while they compute
};

struct SolverInput {
  std::vector<SolverStage> stages;
  double transfer = 0;           // of a micro-batch to the next stage
  bool receiver_copies = false;  // the receiving rank is busy with the transfer
  double wake = 0;               // after every wait for a transfer
  double host_cores = 0;  // shared by the stages of a host; 0 = every rank has its own device
};

struct SolverOutput {
  std::vector<double> last_forward_end;
  std::vector<double> last_backward_begin;  // of each stage
  std::vector<double> end;                  // of each stage's last task
  std::vector<double> busy;                 // of each stage: inside tasks, without waits
};

/// Plays the tasks of a pipeline: each stage its own list in order, a forward after the previous
/// stage's, a backward after the next stage's (the recurrence of Narayanan et al. 2021,
/// section 2.2). Stages that share cores are slowed equally while their tasks overlap.
SolverOutput solve_tasks(const program::Schedule& schedule, const SolverInput& input);

}  // namespace meshplan::sim
