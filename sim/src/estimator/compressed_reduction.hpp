// What the estimator knows of compressed gradients (program/compression.hpp).
#pragma once

#include "estimator/gradient_buckets.hpp"
#include "prices/operator_table.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::sim {

/// One bucket's sum over the ranks that hold the same parameters.
struct CompressedReduction {
  double scatter_seconds = 0;  // hybrid sharding: the sum over the shard group before it, whole
  double communication_seconds = 0;
  double compress_seconds = 0;
  double sum_seconds = 0;     // summing and decompressing
  double settle_seconds = 0;  // fp16: once a step
  double error_bytes = 0;     // kept from step to step, of gradients and of sums
  double slot_bytes = 0;      // of one slot on its way
};

/// With hybrid sharding the sum of what a rank owns over its replicas, after the reduce-scatter.
/// @param elements  of the bucket, before padding
CompressedReduction compressed_reduction(const program::Plan& plan, double elements, bool expert,
                                         DataGroups& groups, const OperatorTable& table,
                                         const Cluster& cluster);

}  // namespace meshplan::sim
