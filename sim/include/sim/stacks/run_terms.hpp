#pragma once

#include <vector>

#include "sim/engine/prediction_terms.hpp"
#include "sim/stacks/run_prediction.hpp"

namespace meshplan::sim {

/// Terms of a run of any stack, largest contribution to the interval first.
std::vector<PredictionTerm> terms_of(const RunPrediction& prediction, const TrainingRun& run);

}  // namespace meshplan::sim
