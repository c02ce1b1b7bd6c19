#pragma once

#include <cstdint>
#include <vector>

#include "estimator/blocks/block_prices.hpp"
#include "estimator/chunk_costs.hpp"
#include "program/memory/activations.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// Puts a chunk together: the stage of the small pipeline that has what it has beside layers, and
/// layers by their kind.
class ChunkMaker {
 public:
  /// @param base  must outlive it, and so must the stages of its layers
  ChunkMaker(const Cluster& cluster, const StagePrices& base);

  /// @param stage  of a small pipeline with layers of the kind
  void add_layer(const StagePrices& stage);
  /// @param pairs  of a stage that runs a forward of such layers together with a backward
  void add_saved(const StagePrices& pairs);

  /// Nothing in it or before it is trained.
  void drop_backward();

  /// The first `layers` keep what backward needs on the host.
  /// @param begins_model  the first of them reads what the embedding leaves, not what arrives
  /// @param ends_model  a micro-batch comes back at once
  void offload(int layers, bool begins_model, bool ends_model);

  ChunkCost run();

 private:
  struct Seconds {
    double forward = 0;
    double first = 0;   // of a backward that writes gradients
    double last = 0;    // of the task that completes them
    double single = 0;  // of that task if it is the only one and writes them
  };

  void add(int times, const StagePrices& stage);
  /// What copies of activations cost, once the chunk's layers are known.
  void add_copies();
  /// Gradients as the chunk's last task makes them, layer by layer, and when its forward needs the
  /// weights.
  void add_gradients();
  /// @param stage  whose part number `index` it is
  void add_part(const StagePrices& stage, std::size_t index, const Seconds& seconds,
                const std::vector<std::int64_t>& copied, bool backward_reads);

  const Cluster& cluster_;
  const StagePrices& base_;
  int offloaded_ = 0;                               // layers
  bool begins_model_ = false, ends_model_ = false;  // see offload()
  double turns_ = 1;
  double ready_ = 0;
  double ready_at_once_ = 0;
  double needed_ = 0;
  ChunkCost chunk_;
  program::ChunkKeeps keeps_;
  std::vector<const StagePrices*> layers_;
};

}  // namespace meshplan::sim
