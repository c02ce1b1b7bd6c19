// Peak memory of the fullest rank of a run, term by term.
#pragma once

#include "sim/clusters/cluster.hpp"
#include "sim/stacks/run_prediction.hpp"
#include "stacks/stage_work.hpp"

namespace meshplan::sim {

RunMemory run_memory(const TrainingRun& run, const ExecutionProfile& profile,
                     const Cluster& cluster, const StageWork& work);

}  // namespace meshplan::sim
