#include "schedules/plan_keys.hpp"

namespace meshplan::sim {
namespace {

/// Fields that say nothing of what a step computes.
template <class... Fields>
void is_label(const Fields&... /*fields*/) {}

/// Fields of the task: a plan of another one finds nothing here.
template <class... Fields>
void is_of_task(const Fields&... /*fields*/) {}

}  // namespace

bool TrainingTask::is_of(const program::Plan& plan) const {
  return model == plan.model && workload == plan.workload && frozen == plan.frozen;
}

void PlanKeys::set(const program::Plan& plan) {
  // All fields by name: one that is added does not compile until it has its place below.
  const auto& [schema_version, model, model_hash, cluster_name, cluster_hash, cluster_json,
               workload, stack, parallel, context_parallel, max_tokens_per_rank, rank_order,
               schedule_kind, custom_schedule, micro_batch_size, uneven_batch, recompute,
               layers_per_stage, count_ends_as_layers, offload_optimizer, offload_parameters,
               offload_activations, progress_thread, expert_imbalance, expected_expert_imbalance,
               expert_node_ranks, expert_dispatch_fp8, bucket_bytes, zero_stage, zero_shard_group,
               compression, frozen, attention, attention_workspace_bytes, deterministic,
               prediction] = plan;
  const auto& [tp, cp, pp, vpp, dp, ep, etp, sp] = parallel;
  const auto& [recompute_kind, recompute_layers, recompute_per_stage, recompute_modules] =
      recompute;
  const auto& [compression_kind, compression_ratio] = compression;
  is_label(schema_version, model_hash, cluster_name, cluster_hash, cluster_json, prediction, stack,
           uneven_batch);
  is_of_task(model, workload, frozen);

  layout.set(tp, cp, pp, dp, ep, etp, zero_stage > 0, zero_shard_group, expert_node_ranks,
             rank_order);
  schedule.set(schedule_kind, pp, vpp, custom_schedule);
  programs.set(tp, sp, cp, context_parallel, max_tokens_per_rank, progress_thread, attention,
               attention_workspace_bytes, deterministic, program::keeps_quantized_weights(plan));
  blocks.set(programs, micro_batch_size);
  expert_blocks.set(ep, etp, expert_imbalance, expected_expert_imbalance, expert_node_ranks,
                    expert_dispatch_fp8);
  division.set(pp, vpp, layers_per_stage, count_ends_as_layers, recompute_kind, recompute_layers,
               recompute_per_stage, recompute_modules.bits(), offload_activations);
  buckets.set(bucket_bytes, zero_stage, compression_kind, compression_ratio, progress_thread);
  reduction.set(buckets, dp, micro_batch_size, zero_shard_group, offload_optimizer,
                offload_parameters);
}

}  // namespace meshplan::sim
