// Configurations in words, equal where what they describe is.
#pragma once

#include <string>

#include "sim/stacks/training_run.hpp"

namespace meshplan::sim {

/// What a layer does on a device: its shards, its tokens, and all that changes its kernels.
std::string words_of_layers(const TrainingRun& run);
/// The whole configuration: layers, pipeline, replicas and batch.
std::string words_of_run(const TrainingRun& run);

}  // namespace meshplan::sim
