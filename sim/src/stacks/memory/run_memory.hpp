// Peak memory of each stage's ranks of a run, term by term.
#pragma once

#include <vector>

#include "sim/clusters/cluster.hpp"
#include "sim/stacks/run_prediction.hpp"
#include "stacks/stage_work.hpp"

namespace meshplan::sim {

std::vector<RunMemory> run_memory(const TrainingRun& run, const ExecutionProfile& profile,
                                  const Cluster& cluster, const StageWork& work);
/// The first stage of those that need most. @param stages  at least one
const RunMemory& fullest(const std::vector<RunMemory>& stages);

}  // namespace meshplan::sim
