// FSDP2 with its device mesh, or DDP.
#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "formats/accelerate/accelerate.hpp"
#include "formats/accelerate/write_common.hpp"
#include "formats/sharding.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::planner {
namespace accelerate {
namespace {

using program::ContextMethod;
using program::Plan;
using program::RecomputeKind;

void refuse_degrees(Refusals& refusals, const Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  refusals.add(p.pp > 1, "parallel.pp", p.pp,
               "parallelism_config has no pipeline; nearest: 1, or format accelerate-megatron");
  refusals.add(p.ep > 1, "parallel.ep", p.ep, "parallelism_config has no experts; nearest: 1");
  refusals.add(p.etp > 1, "parallel.etp", p.etp, "parallelism_config has no experts; nearest: 1");
  refusals.add(p.tp > 1 && p.sp, "parallel.sp", true,
               "tensor parallelism of transformers keeps all tokens on every rank; nearest: false");
  refusals.add(
      plan.model.num_kv_heads % p.tp != 0, "parallel.tp", p.tp,
      fmt::format("transformers cuts num_kv_heads ({}); nearest: {}", plan.model.num_kv_heads,
                  nearest_divisor(std::max(1, plan.model.num_kv_heads), p.tp)));
  refusals.add(p.cp > 1 && plan.context_parallel == ContextMethod::Ulysses, "context_parallel",
               "ulysses",
               "cp_comm_strategy is allgather or alltoall (a ring); nearest: all_gather, or format "
               "accelerate-deepspeed");
  refuse_other_order(refusals, plan, "tp-cp-dp-pp");
}

void refuse_sharding(Refusals& refusals, const Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  refusals.add(plan.zero_stage == 1, "zero_stage", 1,
               "FSDP divides gradients, too, DDP nothing; nearest: 2");
  refusals.add(plan.zero_stage == 0 && p.tp * p.cp > 1, "zero_stage", 0,
               fmt::format("tp({}) * cp({}) is not beside DDP (parallelism_config.py); nearest: 3",
                           p.tp, p.cp));
  refusals.add(plan.zero_shard_group > 0 && plan.zero_shard_group % p.cp != 0, "zero_shard_group",
               plan.zero_shard_group,
               fmt::format("a copy lies on dp_shard_size * cp({}) ranks; nearest: {}", p.cp,
                           std::max(1, plan.zero_shard_group / p.cp) * p.cp));
  refusals.add(
      plan.zero_shard_group == p.cp && p.dp > 1, "zero_shard_group", plan.zero_shard_group,
      fmt::format("dp_shard_size 1 is not beside dp_replicate_size (parallelism_config.py); "
                  "nearest: {}",
                  2 * p.cp));
  refusals.add(plan.offload_optimizer && plan.zero_stage == 0, "offload_optimizer", true,
               "fsdp_offload_params is FSDP's; nearest: false");
}

void refuse_recompute(Refusals& refusals, const Plan& plan) {
  const program::Recompute& recompute = plan.recompute;
  refusals.add(recompute.kind == RecomputeKind::Selective, "recompute.kind", "selective",
               "fsdp_activation_checkpointing takes whole layers; nearest: full");
  refusals.add(recompute.kind == RecomputeKind::Full &&
                   (recompute.num_layers.has_value() || !recompute.layers_per_stage.empty()),
               "recompute.num_layers", recompute.num_layers.value_or(0),
               "all layers are recomputed or none; nearest: null");
  refusals.add(recompute.kind == RecomputeKind::Full && plan.zero_stage == 0, "recompute.kind",
               "full", "fsdp_activation_checkpointing is FSDP's; nearest: none");
  refusals.add(plan.workload.fp8 != program::Float8Recipe::None, "workload.precision", "fp8",
               "its FP8 needs a backend that a plan does not name; nearest: bf16");
}

Json fsdp_section(const Plan& plan) {
  return {{"fsdp_version", 2},
          {"fsdp_reshard_after_forward", plan.zero_stage == 3},
          {"fsdp_offload_params", plan.offload_optimizer},
          {"fsdp_activation_checkpointing", plan.recompute.kind == RecomputeKind::Full},
          {"fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
          {"fsdp_cpu_ram_efficient_loading", true},
          {"fsdp_state_dict_type", "SHARDED_STATE_DICT"}};
}

Json mesh_section(const Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  const Sharding sharding = sharding_of(plan);
  Json mesh = {{"parallelism_config_dp_replicate_size", sharding.replicate},
               {"parallelism_config_dp_shard_size", sharding.shard},
               {"parallelism_config_tp_size", p.tp},
               {"parallelism_config_cp_size", p.cp}};
  if (p.cp > 1)
    mesh["parallelism_config_cp_comm_strategy"] =
        plan.context_parallel == ContextMethod::Ring ? "alltoall" : "allgather";
  return mesh;
}

}  // namespace
}  // namespace accelerate

std::vector<ExportedFile> write_accelerate_fsdp(const ExportRequest& request) {
  const program::Plan& plan = request.plan;
  Refusals refusals("accelerate with FSDP");
  refuse_own_techniques(refusals, plan);
  refuse_offloaded_parameters(refusals, plan);
  accelerate::refuse_degrees(refusals, plan);
  accelerate::refuse_sharding(refusals, plan);
  accelerate::refuse_recompute(refusals, plan);
  accelerate::refuse_optimizer(refusals, plan);
  refusals.throw_if_any();
  if (plan.zero_stage == 0)
    return accelerate::folder_of(request, accelerate::machine_section(request, "MULTI_GPU"), "");
  Json configuration = accelerate::machine_section(request, "FSDP");
  configuration["fsdp_config"] = accelerate::fsdp_section(plan);
  configuration["parallelism_config"] = accelerate::mesh_section(plan);
  return accelerate::folder_of(request, configuration, "");
}

}  // namespace meshplan::planner
