#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "sim/engine/prediction_terms.hpp"
#include "sim/stacks/run_prediction.hpp"

namespace meshplan::sim {

/// The terms of a run's step: places in run_terms.
enum class RunTerm {
  Products,
  Attention,
  Streams,
  Starts,
  Exchange,
  Experts,
  Host,
  Pipeline,
  DataParallel,
  Optimizer,
  HostMemory,
  Overhead,
  Release,
  Habits,
  Constants,
};
constexpr int kNumRunTerms = 15;
/// "matrix products", "attention", ...: as PredictionTerm has it.
std::string_view name_of(RunTerm term);

/// All terms of a run of any stack, as they are known without a measured run beside it.
std::array<PredictionTerm, kNumRunTerms> run_terms(const RunPrediction& prediction,
                                                   const TrainingRun& run);

/// Those that add to the interval, largest contribution first, and as measured runs narrow them
/// (RunPrediction::narrowed).
std::vector<PredictionTerm> terms_of(const RunPrediction& prediction, const TrainingRun& run);

}  // namespace meshplan::sim
