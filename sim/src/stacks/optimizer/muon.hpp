// Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"): the
// momentum of every matrix but embeddings and the head is made orthogonal by Newton and Schulz's
// iteration before it is added; the rest is updated by Adam.
#pragma once

#include <algorithm>
#include <vector>

#include "core/index.hpp"
#include "stacks/stage_work.hpp"

namespace meshplan::sim {

/// Ranks that hold the same dense parameters, and the same experts, and divide their updates.
struct UpdateShards {
  double dense = 1;
  double expert = 1;
};

/// What the fullest of `shards` ranks has of `sum` where nothing is divided of which one piece is
/// `largest`: pieces are dealt by their size, so that it is little more than the mean (Megatron-LM,
/// core/optimizer/layer_wise_optimizer.py).
inline double fullest_share(double sum, double largest, double shards) {
  return std::max(sum / shards, largest);
}

/// A quantity, by matrix, of those of a stage that its fullest rank updates, which it owns whole.
/// @param of  of one TrainedMatrix
template <class Quantity>
double of_owned_matrices(const StageWork& work, int stage, const UpdateShards& shards,
                         const Quantity& of) {
  std::vector<int> layers_of(work.works.size(), 0);  // that work alike, over all chunks
  for (const ChunkWork& chunk : work.stages[at(stage)])
    for (const LayerCount& layers : chunk.layers) layers_of[at(layers.work)] += layers.count;
  ParameterCount sum, largest;
  for (std::size_t w = 0; w < layers_of.size(); ++w) {
    if (layers_of[w] == 0) continue;
    for (const TrainedMatrix& matrix : work.works[w].matrices) {
      double ParameterCount::*const kind =
          matrix.expert ? &ParameterCount::expert : &ParameterCount::dense;
      const double value = of(matrix);
      sum.*kind += layers_of[w] * matrix.count * value;
      largest.*kind = std::max(largest.*kind, value);
    }
  }
  return fullest_share(sum.dense, largest.dense, shards.dense) +
         fullest_share(sum.expert, largest.expert, shards.expert);
}

/// Elements that a rank updates on the fullest rank of a stage.
struct UpdatedElements {
  double matrices = 0;
  double others = 0;
};
UpdatedElements updated_elements(const TrainingRun& run, const StageWork& work, int stage,
                                 const UpdateShards& shards);

/// What a rank does to make one matrix orthogonal, in bf16 (NVIDIA-NeMo/Emerging-Optimizers,
/// orthogonalized_optimizers/muon_utils.py, newton_schulz_tp: "medium" precision).
std::vector<WorkItem> orthogonalization(const TrainedMatrix& matrix, const TrainingRun& run);

}  // namespace meshplan::sim
