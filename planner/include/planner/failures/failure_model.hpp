// What failures cost a plan on a cluster, computed from its layout: checkpoints, restarts, and the
// smaller world that is left until a node is back. What is not modelled: docs/failures/README.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/graph.hpp"
#include "planner/failures/goodput.hpp"
#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::planner {

constexpr double kHourSeconds = 3600;
constexpr double kDaySeconds = 24 * kHourSeconds;

/// Where a checkpoint must be before the job can restart from it.
enum class CheckpointPlace {
  Storage,  // a file system that all nodes share
  Partner,  // the host memory of another node, which holds a copy of each rank's part
};

/// What a job does while it has fewer nodes than it was planned for and no spare.
enum class SmallerWorld {
  KeepBatch,    // fewer replicas share the same micro-batches
  ShrinkBatch,  // fewer replicas, each with as many micro-batches as before
  Wait,         // it stands still until the node is back
};

/// What is known or assumed of failures beside the plan and its cluster.
struct FailureAssumptions {
  /// Llama 3 405B: 419 unexpected interruptions of 16,384 GPUs in 54 days (Llama 3 team 2024,
  /// section 3.3.4).
  static constexpr double kLlama3MtbfHours = 54.0 * 24 * 16384 / 419;

  double device_mtbf_hours = kLlama3MtbfHours;  // mean time between failures of one device
  CheckpointPlace checkpoints = CheckpointPlace::Storage;
  SmallerWorld smaller_world = SmallerWorld::KeepBatch;
  /// From a failure until the job is stopped. Default: the time after which PyTorch gives a
  /// collective of NCCL up; a process that dies is noticed sooner.
  double detection_s = 600;
  double start_s = 300;                     // from there until processes have started and met
  std::optional<double> checkpoint_s = {};  // that a checkpoint stops training; absent: computed
  std::optional<double> interval_s = {};    // of training between checkpoints; absent: the best
  /// All nodes together; absent: Cluster::storage_gb_per_s, else kStorageGbPerSecondOfNode.
  std::optional<double> storage_gb_per_s = {};
  double repair_hours = 24;  // until a node that failed is back
  int spare_nodes = 0;       // that stand by, and replace one at once
  bool operator==(const FailureAssumptions&) const = default;
};

/// Rate of the file system where nobody says it: per node. Llama 3's had
/// 2 TB/s for some 2,000 nodes of 8 GPUs (Llama 3 team 2024, section 3.3.1).
constexpr double kStorageGbPerSecondOfNode = 1;

/// The mean time between failures of one device, with its unit: "50000h", "2083d", "5.7y" (of
/// 365.25 days). @returns hours @throws ConfigError for anything else and for what is not above 0
double parse_mtbf_hours(std::string_view text);

/// Bytes and seconds of one checkpoint.
struct CheckpointCosts {
  double bytes = 0;            // of the whole
  double rank_bytes = 0;       // of the rank that saves most
  double host_node_bytes = 0;  // host memory of a node that copies take
  double host_node_limit = 0;  // that a node has for them; infinite if not known
  double stall_s = 0;          // copy to host memory, for which training stops
  double lag_s = 0;            // from there to storage or to the partner, beside training
  double load_s = 0;           // of all ranks, from there
  bool fits_host() const { return host_node_bytes <= host_node_limit; }
};

/// How fast a plan's job is on fewer nodes. All ranks of a node leave with it, and the surviving
/// nodes are meshed anew into as many whole replicas as they hold.
class SmallerWorlds {
 public:
  SmallerWorlds(const program::Plan& plan, int devices_per_node, int num_nodes, SmallerWorld kind);

  /// Work per second on so many nodes, over that on all: 1 on all of them, 0 if they hold no
  /// replica.
  double speed(int nodes) const;
  /// Replicas that so many nodes hold: of those with which the expert grid and hybrid shards still
  /// divide the ranks.
  int replicas(int nodes) const;

 private:
  program::ParallelConfig parallel_;
  int zero_shard_group_ = 0;
  int num_microbatches_ = 1;
  int devices_per_node_ = 1;
  int num_nodes_ = 1;
  SmallerWorld kind_ = SmallerWorld::KeepBatch;
};

/// What failures cost one plan.
struct FailureCosts {
  int num_nodes = 1;
  int devices = 1;
  double mtbf_s = 0;  // of the job on all its nodes
  CheckpointCosts checkpoint;
  double detection_s = 0;
  double start_s = 0;
  double repair_s = 0;
  int spare_nodes = 0;
  SmallerWorlds worlds;

  /// From a failure until training goes on.
  double restart_s() const { return detection_s + start_s + checkpoint.load_s; }
  /// The same where nobody fails: a node joins again.
  double rejoin_s() const { return checkpoint.lag_s + start_s + checkpoint.load_s; }
  /// The least time between checkpoints: the one before must be complete, and a step done.
  double least_interval_s(double step_time_s) const;
  /// Daly's best interval, or what is asked for, but not less than the least one.
  double interval_s(std::optional<double> asked, double step_time_s) const;
};

/// The share of a job's time that trains.
struct Goodput {
  double goodput = 1;           // time of training over all time
  double interval_s = 0;        // of training between checkpoints
  double mtbf_s = 0;            // of the job
  double failures_per_day = 0;  // expected
  double failure_s = 0;         // that one failure costs: restart and lost work
  double saving = 0;            // part of the time in which checkpoints stop training
  double smaller_world = 0;     // part of the work that fewer nodes do not do
  double paid = 1;              // devices with those of spare nodes, over those of the job
  CheckpointCosts checkpoint;   // that it rests on
  /// Seconds of a step at this goodput: what plans are compared by.
  double effective_s(double step_time_s) const { return step_time_s / goodput; }
};

/// Prices failures of plans for one model and cluster. Cheap: a search asks it for every plan.
class FailureModel {
 public:
  /// @throws ConfigError for assumptions that are not positive and finite, for more spare nodes
  /// than nodes, for copies in a partner's memory on a single node, and where failures leave no
  /// time to restart
  /// @param frozen  Plan::frozen of the plans
  FailureModel(const models::ModelSpec& model, const std::vector<std::string>& frozen,
               const sim::Cluster& cluster, const FailureAssumptions& assumptions);

  const FailureAssumptions& assumptions() const { return assumptions_; }

  FailureCosts costs(const program::Plan& plan) const;
  /// The closed form: checkpoint_goodput() times the mean speed over the nodes that are away. These
  /// are Poisson with mean repair time over MTBF, as in a queue where each repair begins at once
  /// (M/G/infinity).
  /// @param step_time_s  0: not known yet, which bounds the goodput from above
  Goodput goodput(const program::Plan& plan, double step_time_s) const;

  /// What was filled in, each a line: "file system 16 GB/s: 1 GB/s a node (--storage-bandwidth)".
  std::vector<std::string> assumed() const;

 private:
  /// Elements of parameters.
  struct Elements {
    double dense = 0;
    double experts = 0;
    double frozen = 0;
    Elements& operator+=(const Elements& other);
  };
  struct StageBytes;
  static Elements elements_of(const models::LayerGraph& layer, const std::vector<bool>& frozen);
  static StageBytes bytes_of(const program::Plan& plan, const Elements& elements);

  Elements elements_of_stage(const program::Plan& plan, int stage,
                             const std::vector<int>& layers) const;
  CheckpointCosts checkpoint_costs(const program::Plan& plan) const;

  sim::Cluster cluster_;
  FailureAssumptions assumptions_;
  Elements embedding_, ending_;
  std::vector<Elements> layers_;
};

}  // namespace meshplan::planner
