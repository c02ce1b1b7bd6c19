#include "estimator/stage_costs.hpp"

#include <algorithm>

#include "prices/element_bytes.hpp"

namespace meshplan::sim {
namespace {

using program::Plan;

/// Seconds of all tasks of a stage, alone.
TaskTime total_of(const Plan& plan, const StageCost& stage, bool split) {
  const int m = plan.num_microbatches();
  TaskTime total;
  for (const ChunkCost* chunk : stage.chunks) {
    const TaskTimes& tasks = chunk->tasks;
    total = total.plus(m, tasks.forward);
    if (plan.zero_stage >= 2)  // every micro-batch writes its gradients anew
      total = total.plus(m, tasks.backward_first);
    else if (split)
      total = total.plus(m, tasks.input).plus(1, tasks.weight_first).plus(m - 1, tasks.weight);
    else
      total = total.plus(1, tasks.backward_first).plus(m - 1, tasks.backward);
  }
  return total;
}

/// Part of its tasks' time in which a CPU rank holds its core.
double core_share(const StageCost& stage) {
  TaskTime sum;
  for (const ChunkCost* chunk : stage.chunks)
    sum = sum.plus(1, chunk->tasks.forward).plus(1, chunk->tasks.backward);
  return sum.seconds > 0 ? 1 - sum.idle / sum.seconds : 1;
}

}  // namespace

double StagePricing::all_reduce(double elements, PricedGroup& group) const {
  return group.seconds(program::Collective::AllReduce, elements * kFp32Bytes, cluster);
}

void price_stage_cost(const StagePricing& pricing, const std::vector<const ChunkCost*>& chunks,
                      bool last, bool split, StageCost& stage) {
  stage.chunks = chunks;
  stage.kept.clear();
  stage.host_kept.clear();
  stage.sums = {};
  stage.slots = {};
  stage.load_seconds = stage.square_seconds = 0;
  double tied = 0;
  for (const ChunkCost* chunk : stage.chunks) {
    tied += chunk->tied_elements;
    stage.load_seconds = std::max(stage.load_seconds, chunk->load_seconds);
    stage.sums = stage.sums.plus(1, chunk->sums);
    stage.slots = stage.slots.covering(chunk->slots);
    stage.square_seconds += chunk->sums.norm_seconds;
    if (pricing.plan.zero_stage < 2)  // else with their unit
      for (const std::int64_t part : chunk->layer_copied_parts)
        stage.sums.norm_seconds +=
            chunk->num_layers *
            pricing.all_reduce(static_cast<double>(part), pricing.where.data.kv_copies);
    stage.kept.push_back(chunk->kept_bytes);
    stage.host_kept.push_back(chunk->host_kept_bytes);
  }
  const double partial = stage.sums.partial_elements;
  stage.tied = tied > 0;
  stage.last = last;
  stage.sums.norm_seconds += pricing.all_reduce(partial, pricing.where.tp);
  if (tied > 0) stage.sums.norm_seconds += pricing.all_reduce(tied, pricing.where.embedding);
  if (last)
    stage.sums.norm_seconds +=
        pricing.all_reduce(2, pricing.where.data.dense);  // the loss, one fp64
  stage.total = total_of(pricing.plan, stage, split);
  stage.core_share = core_share(stage);
  price_data_parallel(pricing, partial + tied, stage);
  if (pricing.plan.offload_optimizer) price_offload(pricing, stage);
}

}  // namespace meshplan::sim
