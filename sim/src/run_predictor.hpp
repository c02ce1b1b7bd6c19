// The step time of a run whose work and placement are known: phases priced, composed by the
// schedule.
#pragma once

#include "sim/execution_profile.hpp"
#include "sim/run_prediction.hpp"
#include "stage_work.hpp"
#include "work_prices.hpp"

namespace meshplan::sim {

/// Step time and where it goes; neither memory nor interval.
RunPrediction predict_step(const TrainingRun& run, const ExecutionProfile& profile,
                           const Cluster& cluster, const RunPlacements& placements,
                           const StageWork& work, const Constants& constants);

}  // namespace meshplan::sim
