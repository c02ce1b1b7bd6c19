// Time of a pipeline's schedule from the durations of its tasks.
#pragma once

#include <vector>

#include "program/schedule/schedule.hpp"
#include "schedules/compiled_schedule.hpp"

namespace meshplan::sim {

struct ChunkTime {
  double forward = 0;
  double backward = 0;
};

struct PipelineInput {
  program::ScheduleKind schedule = program::ScheduleKind::OneFOneB;
  std::vector<std::vector<ChunkTime>> stages;  // [stage][chunk]; all stages have as many chunks
  int num_microbatches = 1;
  // Of each stage's message to the next one, the last stage's to the first: seconds from the end of
  // a task to the start of the next one.
  std::vector<double> transfers;
  double transfer_busy = 0;  // the part of them that blocks sender and receiver themselves
};

/// A pipeline's schedule; searches ask for few, often. Each thread has its own, which stays until
/// the next call.
CompiledSchedule& known_pipeline(program::ScheduleKind kind, int stages, int num_microbatches,
                                 int chunks);

/// Seconds from the first task's start to the last one's end on any stage. Long runs are continued
/// at the period of their last rounds; GPipe's, whose halves repeat, at that of a micro-batch more.
double pipeline_seconds(const PipelineInput& input);

}  // namespace meshplan::sim
