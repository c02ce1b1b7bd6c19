// Time of a pipeline's schedule from the durations of its tasks.
#pragma once

#include <vector>

namespace meshplan::sim {

struct ChunkTime {
  double forward = 0;
  double backward = 0;
};

struct PipelineInput {
  std::vector<std::vector<ChunkTime>> stages;  // [stage][chunk]; all stages have as many chunks
  int num_microbatches = 1;
  double transfer_delay = 0;  // from the end of a task to the start of the next one
  double transfer_busy = 0;   // of that, what blocks the sender and the receiver themselves
};

/// Seconds from the first task's start to the last one's end on any stage, in the order of 1F1B
/// (Narayanan et al. 2021, section 2.2.1) or, with several chunks, interleaved 1F1B (section 2.2.2;
/// the order of Megatron's schedules). Long runs are continued at the period of their last rounds.
/// @throws InvariantError if the order waits in a circle
double pipeline_seconds(const PipelineInput& input);

}  // namespace meshplan::sim
