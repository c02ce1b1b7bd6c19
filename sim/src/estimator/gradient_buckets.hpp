// Runs of gradients that are reduced at once over the ranks that hold the same parameters.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "estimator/chunk_costs.hpp"
#include "prices/operator_table.hpp"
#include "prices/priced_group.hpp"
#include "program/plan/plan.hpp"
#include "schedules/cache_key.hpp"

namespace meshplan::sim {

/// A run of gradients that is reduced at once: ready when the last of its chunks' parts is.
struct Bucket {
  double elements = 0;
  bool expert = false;
  double seconds = 0;          // to reduce it
  double compute_seconds = 0;  // to compress and to sum it, if it is compressed
  double whole = 0;            // ZeRO-1: elements, filled up to equal parts
  double gather_seconds = 0;   // and to gather its updated weights
  std::size_t begin_part = 0;  // into StageBuckets::parts
  std::size_t end_part = 0;
};
/// Ends with a chunk's gradients of this number: the last to be ready, and the first of which a
/// forward needs the weights.
struct BucketPart {
  std::size_t chunk = 0;
  std::size_t last = 0;  // into ChunkCost::ready
};

/// Computation and memory that compression adds to sums of gradients.
struct CompressionCost {
  double seconds = 0;
  double settle_seconds = 0;  // at the end of the step
  double error_bytes = 0;
  double slot_bytes = 0;  // of one slot on its way

  void add(const CompressionCost& other);
};

/// Buckets of a stage. They do not say when gradients are ready, so that all plans that cut them
/// alike share them.
struct StageBuckets {
  std::vector<Bucket> all;
  std::vector<BucketPart> parts;
  CompressionCost compression;
};

/// The groups that hold the same parameters, and with ZeRO the parts of them that share one copy.
struct DataGroups {
  PricedGroup dense, experts;                   // all of them
  PricedGroup dense_shards, expert_shards;      // of one rank without ZeRO
  PricedGroup dense_replicas, expert_replicas;  // hybrid sharding
  PricedGroup kv_copies;
  /// Seconds to add up reduced gradients, by 2 * elements + expert: their price is found by a text.
  std::unordered_map<std::int64_t, double> accumulate;

  /// Buckets of stages that were priced before, by PlanKeys::buckets and what their chunks hold.
  std::unordered_map<CacheKey, StageBuckets, CacheKey::Hash> buckets;

  PricedGroup& shards(bool expert) { return expert ? expert_shards : dense_shards; }
  PricedGroup& replicas(bool expert) { return expert ? expert_replicas : dense_replicas; }
};

/// Elements of a bucket that `shards` ranks own equal parts of: lowering fills it up.
double padded(double elements, int shards);

/// Buckets over the chunks, as lowering cuts them.
StageBuckets stage_buckets(const program::Plan& plan, const std::vector<const ChunkCost*>& chunks,
                           DataGroups& groups, const OperatorTable& table, const Cluster& cluster);

/// Seconds in which gradients are summed over all ranks that hold them: with ZeRO each rank gets
/// its part of the sum (Rajbhandari et al. 2020, section 5.1), which hybrid sharding sums over
/// its replicas (Zhao et al. 2023, section 3.2.2).
/// @param compression  what compressing them adds is added to it
double reduction_seconds(const program::Plan& plan, double elements, bool expert,
                         DataGroups& groups, const OperatorTable& table, const Cluster& cluster,
                         CompressionCost& compression);

/// Seconds in which owned weights are gathered.
double gather_seconds(const program::Plan& plan, double elements, bool expert, DataGroups& groups,
                      const Cluster& cluster);

}  // namespace meshplan::sim
