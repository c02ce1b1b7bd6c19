// What a rank of the pipeline costs: the sum of its chunks, and what data parallelism adds.
#pragma once

#include <vector>

#include "estimator/chunk_costs.hpp"
#include "estimator/gradient_buckets.hpp"
#include "estimator/gradient_lane.hpp"
#include "estimator/plan_layout.hpp"
#include "estimator/zero_stage.hpp"
#include "prices/operator_table.hpp"
#include "schedules/plan_keys.hpp"

namespace meshplan::sim {

/// A rank of the pipeline: its chunks, and what stages with the same chunks have in common.
struct StageCost {
  std::vector<const ChunkCost*> chunks;
  std::vector<program::KeptBytes> kept;
  std::vector<program::KeptBytes> host_kept;  // of a GPU's host: see ChunkCost
  const StageBuckets* buckets = nullptr;      // none with ZeRO-2 and 3, which reduce by units
  Reduction reduction;  // of one chunk, after the begin of its last task that adds to gradients
  ZeroStage zero;
  TaskTime total;       // of all tasks, alone
  double streamed = 0;  // seconds of that which data parallelism adds
  /// By chunk: seconds in which its last task that adds to gradients reduces them; empty = what
  /// reduces them moves beside it or behind the last task of all.
  std::vector<double> reduced_in_task;
  double core_share = 1;
  CostSums sums;  // with what the norm reduces
  SlotBytes slots;
  double square_seconds = 0;  // the part of the norm in squares of reduced gradients, by bucket
  double load_seconds = 0;
  double compression_bytes = 0;  // of errors
  double compression_slot_bytes = 0;
  bool tied = false;
  bool last = false;  // with the loss
};

/// How much of a stage is priced: each with what comes before.
enum class PricedPart {
  Memory,
  Tasks,  // what each takes alone
  Step,   // gathers and reductions beside them
};

/// A plan whose stages are priced, and what prices rest on.
struct StagePricing {
  const program::Plan& plan;
  const PlanKeys& keys;
  PlanLayout& where;
  const Cluster& cluster;
  const OperatorTable& table;
  PricedPart part = PricedPart::Step;

  /// Seconds to sum fp32 elements that every rank of the group has.
  double all_reduce(double elements, PricedGroup& group) const;
};

/// Prices a stage. `stage` is overwritten; its memory is used again.
/// @param last  with the loss
/// @param split  backwards are
void price_stage_cost(const StagePricing& pricing, const std::vector<const ChunkCost*>& chunks,
                      bool last, bool split, StageCost& stage);

/// Buckets, what ZeRO makes of the stage, and what an update of owned parameters alone takes.
/// @param late  elements that are summed over something else before they are over the replicas
void price_data_parallel(const StagePricing& pricing, double late, StageCost& stage);

/// The update with the copies of its state: between them on one thread, beside them on a GPU.
void price_offload(const StagePricing& pricing, StageCost& stage);

/// The part of the trained parameters that a rank owns.
double owned_share(const ZeroStage& zero);

}  // namespace meshplan::sim
