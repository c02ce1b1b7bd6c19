// What the estimator knows of compressed gradients (program/compression.hpp).
#pragma once

#include "operator_table.hpp"
#include "priced_group.hpp"
#include "program/plan.hpp"

namespace meshplan::sim {

/// One bucket's sum over the ranks that hold the same parameters.
struct CompressedReduction {
  double communication_seconds = 0;
  double computation_seconds = 0;  // compressing, summing and decompressing
  double sum_error_bytes = 0;      // kept from step to step
  double slot_bytes = 0;           // of one slot on its way
};

/// @param elements  of the bucket, before padding
/// @param group  that sums it
CompressedReduction compressed_reduction(const program::Plan& plan, double elements, bool expert,
                                         PricedGroup& group, const OperatorTable& table,
                                         const Cluster& cluster);

}  // namespace meshplan::sim
