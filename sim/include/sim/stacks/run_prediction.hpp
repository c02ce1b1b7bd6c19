// Step time and memory of a training run on any stack: layers priced item by item, composed by the
// profile's overlaps and the schedule.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/clusters/cluster.hpp"
#include "sim/engine/step_prediction.hpp"
#include "sim/prices/fitted_constants.hpp"
#include "sim/stacks/execution_profile.hpp"
#include "sim/stacks/training_run.hpp"

namespace meshplan::models {
struct ModelGraph;
}  // namespace meshplan::models

namespace meshplan::sim {

/// Where the step time goes, seconds of the busiest rank.
struct RunBreakdown {
  double compute = 0;    // of all micro-batches of the slowest stage, recompute included
  double forward = 0;    // the part of compute in forward tasks
  double recompute = 0;  // the part that is computed again
  double recomputed_products = 0;
  double recomputed_attention = 0;
  double products = 0;       // the part of compute in matrix products
  double attention = 0;      // the part in fused attention; the rest are streams
  double starts = 0;         // the part of these streams that their kernels take to start
  double tensor = 0;         // exposed tp, sp, cp and ep communication
  double context = 0;        // the part of tensor between context-parallel ranks
  double experts = 0;        // the part of tensor between expert-parallel ranks
  double host = 0;           // what the device waits for its host
  double pipeline = 0;       // bubble and exposed sends
  double data_parallel = 0;  // exposed gradient and parameter communication
  double optimizer = 0;
  double offload = 0;   // waiting for copies to and from the host's memory
  double overhead = 0;  // loading, logging, stragglers

  // FLOPs, not seconds: what the products and the attention of forward and backward compute.
  double product_flops = 0;
  double attention_flops = 0;
  bool operator==(const RunBreakdown&) const = default;
};

/// Bytes of the rank that needs most.
struct RunMemory {
  int stage = 0;
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;  // kept for backward, of all micro-batches in flight
  double transient = 0;    // working set of a task, gathered parameters, logits
  double allocated() const { return parameters + gradients + optimizer + activations + transient; }
  double context = 0;   // CUDA context and libraries, outside the allocator
  double reserved = 0;  // by the allocator
  double host = 0;      // kept in the host's memory instead
  double visible = 0;   // to nvidia-smi
  double capacity = 0;
  double host_capacity = 0;  // see StageMemory
  /// What the allocator caches beyond it is given back when memory runs short.
  MemoryNeed need() const {
    return deciding({.bytes = allocated() + context, .capacity_bytes = capacity},
                    {.bytes = host, .capacity_bytes = host_capacity, .of_host = true});
  }
  bool fits() const { return need().fits(); }
  bool operator==(const RunMemory&) const = default;
};

struct RunPrediction {
  double step_time_s = 0;
  double relative_sigma = 0;   // of the step time's logarithm
  double constants_sigma = 0;  // the part of it that the fit of the constants leaves
  /// What measured runs leave of the deviation of each of run_terms; empty: all of it.
  std::vector<double> narrowed = {};
  /// The measured time is expected within a factor of 1 + this, either way, in 80 % of cases.
  double half_width_80() const;
  RunBreakdown seconds;
  RunMemory memory;
  BusyTime busy;
  bool experts_across_nodes = false;  // do their rows leave the innermost domain?
  /// `step_time_s` is only known not to be less, and the rest but `busy` and `memory` is empty: see
  /// Wanted.
  bool at_least = false;
  bool operator==(const RunPrediction&) const = default;
};

/// Of a step's matrix products and of its attention, the parts of their time whose shapes, or ones
/// near them, were timed on such a device; formulas alone say the rest.
struct TimedShares {
  double products = 0;
  double attention = 0;
};

/// A run with everything that no constant changes: its work, placement and memory.
class PreparedRun {
 public:
  /// @throws ConfigError for unknown names and degrees that do not divide
  explicit PreparedRun(const TrainingRun& run);
  /// @param data_sheet  of the cluster, instead of the preset that the run names
  /// @throws ConfigError for nodes of several types, too
  PreparedRun(const TrainingRun& run, const Cluster& data_sheet);
  /// @param graph  of the run's model
  PreparedRun(TrainingRun run, const models::ModelGraph& graph, const Cluster& data_sheet);
  ~PreparedRun();
  PreparedRun(PreparedRun&& other) noexcept;
  PreparedRun& operator=(PreparedRun&& other) noexcept;

  RunPrediction predict(const Constants& constants, const Wanted& wanted = {}) const;
  /// A prediction whose interval is wider by how well the constants are known.
  /// @param sigmas  standard deviation of each constant, see sigmas_of
  RunPrediction predict(const Constants& constants, const Constants& sigmas) const;
  /// Of the fullest rank of each stage.
  const std::vector<RunMemory>& memory_of_stages() const;
  /// The part of RunBreakdown::pipeline that messages between stages take; the rest is bubble.
  double exposed_sends(const Constants& constants) const;
  TimedShares timed_shares(const Constants& constants) const;
  const TrainingRun& run() const;
  const ExecutionProfile& profile() const;
  /// What recipes of the run's release chose, each with the release that began and its source.
  const std::vector<std::string>& recipes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace meshplan::sim
