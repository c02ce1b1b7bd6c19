// A cost model whose every number can be worked out by hand, and a small model to plan for.
#pragma once

#include "planner/search/search.hpp"

namespace meshplan::planner {

/// 12 layers, 12 heads, 4 key/value heads: tp may be 1, 2 or 4.
inline models::ModelSpec small_model() {
  return {.name = "small",
          .num_layers = 12,
          .hidden_size = 768,
          .ffn_size = 2048,
          .num_heads = 12,
          .num_kv_heads = 4,
          .head_size = 64,
          .vocab_size = 1024,
          .max_positions = 1024};
}

inline sim::Cluster ranks(int num_ranks) {
  sim::Cluster cluster{.name = "fake", .devices_per_node = num_ranks};
  cluster.device = {.name = "fake", .peak_tflop_per_s = {{"fp32", 1}}, .memory_gib = 1};
  cluster.fabric = {{.name = "all", .link_gb_per_s = 1}};
  return cluster;
}

/// Weights of FakeCosts; seconds and bytes.
struct FakeWeights {
  double work_s = 96;            // forward and backward of the whole batch, on one rank
  double tp_s = 0.25;            // exposed, times (tp - 1)
  double sp_saves = 0.5;         // part of tp_s that sp saves
  double dp_s = 0.125;           // exposed, times (dp - 1)
  double recompute_full = 0.33;  // of the work
  double recompute_selective = 0.04;
  double state_bytes = 960;  // parameters, gradients, optimizer: divided by tp * pp
  double layer_bytes = 8;    // activations of a layer, sequence and micro-batch in flight
  double capacity_bytes = 1e9;
};

inline double recomputed_part(const program::Plan& plan, const FakeWeights& weights) {
  const int layers = plan.model.num_layers / plan.parallel.pp;
  const double part =
      static_cast<double>(std::min(plan.recompute.num_layers.value_or(layers), layers)) / layers;
  switch (plan.recompute.kind) {
    case program::RecomputeKind::None:
      return 0;
    case program::RecomputeKind::Selective:  // whatever modules: they are told apart elsewhere
      return weights.recompute_selective * part;
    case program::RecomputeKind::Full:
      return weights.recompute_full * part;
  }
  return 0;
}

inline double activation_bytes(const program::Plan& plan, const FakeWeights& weights) {
  const int pp = plan.parallel.pp;
  const int layers = plan.model.num_layers / pp;
  const int in_flight = plan.schedule == program::ScheduleKind::GPipe
                            ? plan.num_microbatches()
                            : std::min(pp, plan.num_microbatches());
  double kept_layers = layers;
  const int recomputed = std::min(plan.recompute.num_layers.value_or(layers), layers);
  if (plan.recompute.kind == program::RecomputeKind::Selective) kept_layers -= 0.25 * recomputed;
  if (plan.recompute.kind == program::RecomputeKind::Full) kept_layers -= 0.9 * recomputed;
  return weights.layer_bytes * kept_layers * in_flight * plan.micro_batch_size / plan.parallel.tp;
}

inline sim::StepPrediction fake_estimate(const program::Plan& plan, const FakeWeights& weights) {
  const program::ParallelConfig& parallel = plan.parallel;
  const double work = weights.work_s / parallel.world_size();
  sim::StepPrediction estimate;
  estimate.seconds[sim::Category::Forward] = work / 3;
  estimate.seconds[sim::Category::Backward] = 2 * work / 3;
  estimate.seconds[sim::Category::Recompute] = work * recomputed_part(plan, weights);
  estimate.seconds[parallel.sp ? sim::Category::Sp : sim::Category::Tp] =
      weights.tp_s * (parallel.tp - 1) * (parallel.sp ? 1 - weights.sp_saves : 1);
  estimate.seconds[sim::Category::Dp] = weights.dp_s * (parallel.dp - 1);
  estimate.seconds[sim::Category::Bubble] = work * (parallel.pp - 1) / plan.num_microbatches();
  for (const sim::Category category : sim::all_categories())
    estimate.step_time_s += estimate.seconds[category];
  estimate.peak_memory_bytes =
      weights.state_bytes / (parallel.tp * parallel.pp) + activation_bytes(plan, weights);
  estimate.capacity_bytes = weights.capacity_bytes;
  estimate.mfu = work / estimate.step_time_s;
  return estimate;
}

inline CostModel fake_costs(FakeWeights weights = {}) {
  return {.estimator = [weights]() -> CostModel::Estimate {
    return [weights](const program::Plan& plan, const sim::Wanted&) {
      return fake_estimate(plan, weights);
    };
  }};
}

/// What `enumerate` lists, and nothing else.
inline Space without_variants() {
  Space space = space_preset("default");
  space.schedules = {program::ScheduleKind::GPipe};
  space.recompute_parts.clear();
  space.zero_in_pipelines = false;
  space.bucket_factors.clear();
  space.rank_orders.clear();
  space.refined_modules.clear();
  return space;
}

/// Fakes know one kind of selective recompute.
inline Space without_modules() {
  Space space = space_preset("default");
  space.refined_modules.clear();
  return space;
}

inline SearchRequest small_request(int num_ranks = 8) {
  return {.model = small_model(),
          .cluster = ranks(num_ranks),
          .workload = {.seq_len = 512, .global_batch_size = 32},
          .space = without_modules(),
          .memory_reserve = 0};
}

}  // namespace meshplan::planner
