// What the estimator knows of a stage's data parallelism: runs of gradients that are reduced at
// once, and with ZeRO what its ranks own, gather and stream.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "chunk_costs.hpp"
#include "operator_table.hpp"
#include "priced_group.hpp"
#include "program/plan.hpp"

namespace meshplan::sim {

/// The groups that hold the same parameters, and with ZeRO the parts of them that share one copy.
struct DataGroups {
  PricedGroup dense, experts;                   // all of them
  PricedGroup dense_shards, expert_shards;      // of one rank without ZeRO
  PricedGroup dense_replicas, expert_replicas;  // hybrid sharding
  PricedGroup kv_copies;
  /// Seconds to add up reduced gradients, by 2 * elements + expert: their price is found by a text.
  std::unordered_map<std::int64_t, double> accumulate;

  PricedGroup& shards(bool expert) { return expert ? expert_shards : dense_shards; }
  PricedGroup& replicas(bool expert) { return expert ? expert_replicas : dense_replicas; }
};

/// Elements of a bucket that `shards` ranks own equal parts of: lowering fills it up.
double padded(double elements, int shards);

/// A run of gradients that is reduced at once: ready when the last of its chunks' parts is.
struct Bucket {
  double elements = 0;
  bool expert = false;
  double seconds = 0;          // to reduce it
  std::size_t begin_part = 0;  // into Buckets::parts
  std::size_t end_part = 0;
};
struct BucketPart {
  std::size_t chunk = 0;
  double ready = 0;   // after the begin of the chunk's last gradient task
  double needed = 0;  // after the begin of the chunk's forward
};
struct Buckets {
  std::vector<Bucket> all;
  std::vector<BucketPart> parts;
  void clear() {
    all.clear();
    parts.clear();
  }
};

/// Fills buckets over the chunks in the order in which lowering places their gradients.
void fill_buckets(const program::Plan& plan, const std::vector<const ChunkCost*>& chunks,
                  Buckets& buckets);

/// Seconds in which gradients are summed over all ranks that hold them: with ZeRO each rank gets
/// its part of the sum (Rajbhandari et al. 2020, section 5.1), which hybrid sharding sums over
/// its replicas (Zhao et al. 2023, section 3.2.2).
double reduction_seconds(const program::Plan& plan, double elements, bool expert,
                         DataGroups& groups, const Cluster& cluster);

/// What ZeRO makes of a chunk's tasks.
struct StreamedTasks {
  double forward = 0;   // seconds of a task with the gathers that it waits for
  double backward = 0;  // and reductions
  double tail = 0;      // seconds after the last backward: its last reduction, added up
  double at_end = 0;    // seconds of hybrid sums at the end of the step
};

/// What ZeRO makes of a stage.
struct ZeroStage {
  std::vector<StreamedTasks> tasks;  // by chunk; stages 2 and 3 only
  double gathers = 0;                // seconds of all weights that are gathered once a step
  double first_gather = 0;           // seconds
  double gather_delay = 0;  // seconds by which the first task is late, if they run beside it
  double owned = 0;         // elements
  double whole = 0;         // elements that every rank holds all of
  double streamed = 0;      // elements whose gradients, with stage 3 also weights, are divided
  double owned_streamed = 0;
  double untrained = 0;     // elements that no gradient moves
  double largest_unit = 0;  // elements
  double num_buckets = 0;
  double compression_error_bytes = 0;  // of units
  double compression_slot_bytes = 0;
};

/// @param late  elements that are reduced at the end of the step: tied, or partial over tp
/// @param buckets  of stage 1, filled
ZeroStage zero_stage(const program::Plan& plan, const std::vector<const ChunkCost*>& chunks,
                     double late, const Buckets& buckets, DataGroups& groups,
                     const OperatorTable& table, const Cluster& cluster);

/// Bytes of weights, gradients and optimizer state of a rank.
/// @param elements  of its parameters that are not frozen, if ZeRO divides none
/// @param frozen  elements of which there are weights alone, whole on every rank
/// @param on_gpu  offloaded state is elsewhere
double parameter_bytes(const program::Plan& plan, double elements, double frozen,
                       const ZeroStage& zero, bool on_gpu);

}  // namespace meshplan::sim
