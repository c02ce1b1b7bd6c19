// The step time of a run whose work and placement are known: phases priced, composed by the
// schedule.
#pragma once

#include <limits>

#include "sim/stacks/execution_profile.hpp"
#include "sim/stacks/run_prediction.hpp"
#include "stacks/stage_work.hpp"
#include "stacks/work_prices.hpp"

namespace meshplan::sim {

/// Step time and where it goes; neither memory nor interval.
/// @param most_s  of a pipeline that takes longer only so much is found out:
/// RunPrediction::at_least
RunPrediction predict_step(const TrainingRun& run, const ExecutionProfile& profile,
                           const Cluster& cluster, const RunPlacements& placements,
                           const StageWork& work, const Constants& constants,
                           double most_s = std::numeric_limits<double>::infinity());

/// Seconds that a step would be shorter if messages between stages took no time.
double exposed_sends(const TrainingRun& run, const ExecutionProfile& profile,
                     const Cluster& cluster, const RunPlacements& placements, const StageWork& work,
                     const Constants& constants);

}  // namespace meshplan::sim
