// Seconds of the work items of one rank on one device, with the fitted constants.
#pragma once

#include <vector>

#include "prices/device_speeds.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/prices/fitted_constants.hpp"
#include "stacks/layer/layer_work.hpp"

namespace meshplan::sim {

/// Where the groups of rank 0 sit; found once per run, for it depends on no constant.
struct RunPlacements {
  GroupPlacement tp, cp, ep, etp, dp, expert_dp;
  GroupPlacement node_dp;                  // the part of dp in this rank's node
  GroupPlacement across_dp;                // one rank of dp in each node
  std::vector<GroupPlacement> next_stage;  // a stage's rank and its neighbour in the next stage,
                                           // the last one's in the first
  GroupPlacement next_in_ring;             // this rank and its neighbour in the cp group
};
RunPlacements place_groups(const TrainingRun& run, const Cluster& cluster);

/// Seconds of one phase of one layer and micro-batch.
struct PhaseTime {
  double compute = 0;    // on the device
  double products = 0;   // of compute: matrix products
  double attention = 0;  // of compute: fused attention
  double starts = 0;     // of compute: starts of streaming kernels, besides their bytes
  double exposed = 0;    // communication that nothing hides
  double context = 0;    // of exposed: between context-parallel ranks
  double experts = 0;    // of exposed: between expert-parallel ranks
  double exchange = 0;   // between expert-parallel ranks, beside the compute of other micro-batches
  double hidden = 0;     // communication under compute
  double host = 0;       // to issue it all
  double product_flops = 0;
  double attention_flops = 0;
  double gpu() const { return compute + exposed; }
  PhaseTime& add(const PhaseTime& other, double times = 1);
};

/// Prices items with a cluster whose speeds the constants have set.
class WorkPricer {
 public:
  WorkPricer(const TrainingRun& run, const ExecutionProfile& profile, const Cluster& base,
             const RunPlacements& placements, const Constants& constants);

  PhaseTime price(const std::vector<WorkItem>& items) const;
  /// Is there a timed shape near this product's or attention's?
  bool near_timed_shape(const WorkItem& item) const;
  double stream(double bytes) const;
  double collective(program::Collective kind, double bytes, const GroupPlacement& placement) const;
  double transfer(double bytes, const GroupPlacement& placement) const;
  /// Between stages, without sequence parallelism, each tp rank may send its part of an activation:
  /// the receiving stage gathers it before it computes (Narayanan et al. 2021, section 4.1;
  /// DeepSpeed, runtime/pipe/engine.py, PartitionedTensor::full).
  double gather_received() const;
  const Constants& constants() const { return constants_; }
  const Cluster& cluster() const { return cluster_; }
  double host_factor() const { return host_factor_; }

 private:
  ProductShape product_shape(const WorkItem& item) const;
  double product(const WorkItem& item) const;
  double flash(const WorkItem& item) const;
  double dispatch(const WorkItem& item) const;
  double places_of_token(double places, int k) const;
  const GroupPlacement& placement_of(program::Group group) const;

  const TrainingRun& run_;
  const ExecutionProfile& profile_;
  const RunPlacements& placements_;
  const Constants& constants_;
  Cluster cluster_;
  double peak_ = 0;          // FLOP/s, 16 bit
  double peak_low_ = 0;      // FLOP/s of the run's precision
  double low_fraction_ = 1;  // of the 16-bit efficiency
  double imbalance_ = 0;     // of the busiest expert rank over the mean
  double launch_ = 0;
  double host_factor_ = 1;
  bool tp_overlap_ = false;
};

}  // namespace meshplan::sim
