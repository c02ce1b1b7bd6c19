// Seconds to gather and sum what a run keeps in shards (ZeRO, Rajbhandari et al. 2020; PyTorch
// FSDP, Zhao et al. 2023).
#pragma once

#include "prices/offload.hpp"
#include "stacks/layer/layer_work.hpp"
#include "stacks/work_prices.hpp"

namespace meshplan::sim {

/// Bytes of a parameter as its owner sends it, and as it lies gathered. With scales of blocks,
/// which are found after it has arrived, it travels in 16 bits.
double gathered_bytes(const TrainingRun& run, const ExecutionProfile& profile);

/// Bytes of a parameter that is not trained, as it is kept: as its run says, else as what is
/// trained is kept without its moments, in fp32 where layers are sharded and the optimizer has such
/// a copy.
double frozen_bytes(const TrainingRun& run, const ExecutionProfile& profile);

/// The same as it is gathered: as it is kept, if that is less; 0 where it is not sharded.
double frozen_gathered_bytes(const TrainingRun& run, const ExecutionProfile& profile);

/// Communication of a unit of parameters, seconds.
struct ShardTraffic {
  double gather = 0;   // of the parameters
  double scatter = 0;  // of the gradients' sums
  double across = 0;   // sums of shards across nodes
};

/// Prices the shards of one run; everything given must outlive it.
class ShardPricer {
 public:
  ShardPricer(const TrainingRun& run, const ExecutionProfile& profile,
              const RunPlacements& placements, const WorkPricer& pricer, const HostLink& host)
      : run_(run), profile_(profile), placements_(placements), pricer_(pricer), host_(host) {}

  /// Dense parameters are sharded over dp (in a node only, if the run says so: gradients are then
  /// summed across nodes shard by shard), experts over the ranks that hold the same ones.
  ShardTraffic traffic(const LayerWork& work) const;

  /// Into and out of the buffers that are gathered and summed. A copy reads and writes; gradients
  /// of 16 bits are widened on the way to a sum in 32: by the copy itself, or after it.
  double gather_copies(const LayerWork& work) const;
  double scatter_copies(const LayerWork& work) const;

  const GroupPlacement& dense_shards() const;

 private:
  const TrainingRun& run_;
  const ExecutionProfile& profile_;
  const RunPlacements& placements_;
  const WorkPricer& pricer_;
  const HostLink& host_;
};

/// Part of the compute that stands still while a collective moves beside it: the SMs that it takes,
/// and the memory bandwidth, which follows its rate. That may be slower over the network than
/// inside a node, for which `in_node` stands.
double share_beside(const GroupPlacement& group, const Cluster& cluster, double in_node);

}  // namespace meshplan::sim
