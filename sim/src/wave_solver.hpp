// 1F1B and GPipe micro-batch by micro-batch: what solve_tasks plays task by task, in time that does
// not grow with the number of micro-batches once a pipeline runs evenly.
#pragma once

#include "program/schedule.hpp"
#include "task_solver.hpp"

namespace meshplan::sim {

/// Can solve_waves play this schedule?
bool has_waves(program::ScheduleKind kind, int num_chunks);

/// solve_tasks without `begin`, for stages of one chunk that share no cores and do not copy what
/// they receive; exact but for rounding. `out` is overwritten; its memory is used again.
///
/// Both schedules are recurrences of maxima and sums in which every micro-batch does the same. When
/// one has moved every stage on by the same time as the one before did (1F1B: all stages by one
/// time, GPipe: no stage by less than its predecessor's), so do all that follow (Baccelli et al.
/// 1992, Synchronization and Linearity, section 3.7), and they are skipped.
void solve_waves(program::ScheduleKind kind, const SolverInput& input, int num_microbatches,
                 SolverOutput& out);

}  // namespace meshplan::sim
