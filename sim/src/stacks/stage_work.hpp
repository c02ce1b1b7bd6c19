// What each stage and chunk of a pipeline holds.
#pragma once

#include <vector>

#include "stacks/layer/layer_work.hpp"

namespace meshplan::sim {

struct LayerCount {
  int work = 0;  // index into StageWork::works
  int count = 0;
};

/// One chunk of one stage: layers, and the embedding or head if it holds them.
struct ChunkWork {
  std::vector<LayerCount> layers;
  bool embedding = false;
  int lookups = 0;  // in the embedding: its own, and one of each prediction module here
  bool head = false;
  int predictions = 1;  // logits and losses of the head: one more per multi-token prediction module
};

struct StageWork {
  std::vector<LayerWork> works;  // of the distinct layers
  LayerWork embedding;
  LayerWork head;
  bool tied = false;
  std::vector<std::vector<ChunkWork>> stages;  // [stage][chunk]

  ParameterCount parameters(int stage) const { return count(stage, &LayerWork::parameters); }
  ParameterCount trained(int stage) const { return count(stage, &LayerWork::trained); }
  /// Prediction modules look words up in a copy of the embedding, unless it is there (Megatron-LM,
  /// models/gpt/gpt_model.py).
  bool holds_embedding(int stage) const;
  /// A head of its own, that no embedding here is.
  bool holds_head(int stage) const;

 private:
  ParameterCount count(int stage, ParameterCount LayerWork::*of) const;
};

/// Layers of the pp * vpp positions along the model: as the run's layout says, else as even as
/// possible, the larger ones first; embedding and head count as layers where the run says so.
std::vector<int> layers_per_position(const TrainingRun& run);

/// Layers of `stages` stages that end where the costs up to there exceed their share of all, the
/// head's last: every layer costs 1, the head `head_cost`. A stage may hold none.
std::vector<int> balanced_layers(int num_layers, double head_cost, int stages);

/// How layers are dealt to stages.
enum class StageCut {
  Even,    // layers_per_position
  ByCost,  // balanced_layers where the stack does so, else evenly
};

/// @param graph  of the run's model
StageWork stage_work(const TrainingRun& run, const models::ModelGraph& graph,
                     const ExecutionProfile& profile, StageCut cut);

}  // namespace meshplan::sim
