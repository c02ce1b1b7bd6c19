// What ranks own, gather and stream with ZeRO.
#pragma once

#include <vector>

#include "estimator/chunk_costs.hpp"
#include "estimator/gradient_buckets.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::sim {

/// What ZeRO makes of a chunk's tasks.
struct StreamedTasks {
  double forward = 0;   // seconds of a task with the gathers that it waits for
  double backward = 0;  // and reductions
  double tail = 0;      // seconds after the last backward: its last reduction, added up
  double at_end = 0;    // seconds of hybrid sums at the end of the step
};

/// What ZeRO makes of a stage.
struct ZeroStage {
  std::vector<StreamedTasks> tasks;  // by chunk; stages 2 and 3 only, if tasks are priced
  double gathers = 0;                // seconds of all weights that are gathered once a step
  double first_gather = 0;           // seconds
  double gather_delay = 0;  // seconds by which the first task is late, if they run beside it
  double owned = 0;         // elements
  double whole = 0;         // elements that every rank holds all of
  double streamed = 0;      // elements whose gradients, with stage 3 also weights, are divided
  double owned_streamed = 0;
  double untrained = 0;     // elements that no gradient moves
  double frozen = 0;        // elements of weights alone that are divided, without what fills up
  double owned_frozen = 0;  // a rank's part of them, with that
  double largest_unit = 0;  // elements that are gathered
  double largest_trained_unit = 0;  // elements that are reduced
  double largest_owned = 0;         // of a bucket of a unit: elements
  double num_buckets = 0;
  double compression_error_bytes = 0;  // of all units
  double compression_slot_bytes = 0;
};

struct StagePricing;

/// @param late  elements that are reduced at the end of the step: tied, or partial over tp
/// @param buckets  of stage 1, filled
ZeroStage zero_stage(const StagePricing& pricing, const std::vector<const ChunkCost*>& chunks,
                     double late, const StageBuckets& buckets);

/// Bytes of weights, gradients and optimizer state of a rank.
/// @param elements  of its parameters that are not frozen, if ZeRO divides none
/// @param frozen  elements of which there are weights alone
/// @param on_gpu  offloaded state is elsewhere
double parameter_bytes(const program::Plan& plan, double elements, double frozen,
                       const ZeroStage& zero, bool on_gpu);

}  // namespace meshplan::sim
