#include "formats/torchtitan/inexpressible.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "formats/torchtitan/models.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::planner::torchtitan {
namespace {

using program::ContextMethod;
using program::OptimizerConfig;
using program::OptimizerKind;
using program::Plan;
using program::RecomputeKind;

void refuse_model(Refusals& refusals, const Plan& plan) {
  const models::ModelSpec& model = plan.model;
  if (flavor_of(model) == nullptr)
    refusals.add(true, "model", model.name,
                 fmt::format("it has no flavor of this shape; nearest: {}", nearest_flavor(model)));
  refusals.add(model.mtp_layers > 0, "model.mtp_layers", model.mtp_layers,
               "multi-token prediction is not written by this version; nearest: 0");
  refusals.add(model.dropout > 0, "model.dropout", model.dropout,
               "its models have none; nearest: 0");
  refusals.add(model.moe && model.moe->capacity_factor != 0, "model.moe.capacity_factor",
               model.moe ? model.moe->capacity_factor : 0,
               "its experts take every token; nearest: 0");
}

void refuse_tensor_parallel(Refusals& refusals, const Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  const int kv_heads = plan.model.num_kv_heads;
  refusals.add(kv_heads % p.tp != 0, "parallel.tp", p.tp,
               fmt::format("must divide n_kv_heads ({}): key/value heads are never copied "
                           "(models/common/decoder.py); nearest: {}",
                           kv_heads, nearest_divisor(std::max(1, kv_heads), p.tp)));
  const std::int64_t parts = std::int64_t{p.sp ? p.tp : 1} * (p.cp > 1 ? 2 * p.cp : 1);
  const std::int64_t tokens = plan.micro_batch_size * plan.workload.seq_len;
  refusals.add(tokens % parts != 0, "workload.seq_len", plan.workload.seq_len,
               fmt::format("the {} tokens of a micro-batch must be divisible by tp * 2 cp = {} "
                           "(trainer.py)",
                           tokens, parts));
}

void refuse_pipeline(Refusals& refusals, const Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  refusals.add(p.pp > 1 && plan.model.tied_embeddings, "parallel.pp", p.pp,
               "tied weights are not beside a pipeline (models/common/decoder.py); nearest: 1");
}

void refuse_experts(Refusals& refusals, const Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  if (!plan.model.moe) return;
  const int cut = p.ep == 1 ? p.tp : 1;
  refusals.add(p.etp != cut, "parallel.etp", p.etp,
               fmt::format("experts are cut by tp where expert_parallel_degree is 1, and never "
                           "beside it; nearest: {}",
                           cut));
  const std::int64_t ranks = std::int64_t{p.dp} * p.cp * p.tp;
  const std::int64_t copies = plan.zero_shard_group > 0 ? ranks / p.tp / plan.zero_shard_group : 1;
  refusals.add(copies > 0 && (ranks / copies) % p.ep != 0, "parallel.ep", p.ep,
               fmt::format("must divide dp_shard * cp * tp = {} (distributed/parallel_dims.py)",
                           ranks / std::max<std::int64_t>(1, copies)));
}

void refuse_sharding(Refusals& refusals, const Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  refusals.add(p.cp > 1 && plan.context_parallel != ContextMethod::AllGather, "context_parallel",
               meshplan::name_of(plan.context_parallel),
               "keys and values are gathered (FlexAttention); nearest: all_gather");
  refusals.add(plan.zero_stage == 1 || plan.zero_stage == 2, "zero_stage", plan.zero_stage,
               "FSDP divides weights, gradients and optimizer; nearest: 3");
  refusals.add(plan.zero_stage == 0 && p.cp > 1, "zero_stage", 0,
               fmt::format("with cp({}) weights are divided over cp at least; nearest: 3", p.cp));
  refusals.add(plan.zero_shard_group > 0 && plan.zero_shard_group % p.cp != 0, "zero_shard_group",
               plan.zero_shard_group,
               fmt::format("a copy lies on dp_shard * cp({}) ranks; nearest: {}", p.cp,
                           std::max(1, plan.zero_shard_group / p.cp) * p.cp));
  refuse_other_order(refusals, plan, "tp-cp-ep-dp-pp");
}

void refuse_training(Refusals& refusals, const Plan& plan) {
  const program::Recompute& recompute = plan.recompute;
  const OptimizerConfig& optimizer = plan.workload.optimizer;
  refusals.add(recompute.kind != RecomputeKind::None && recompute.num_layers.has_value(),
               "recompute.num_layers", recompute.num_layers.value_or(0),
               "all layers are recomputed or none; nearest: null");
  refusals.add(
      !recompute.modules.empty(), "recompute.modules", models::to_string(recompute.modules),
      "SelectiveAC saves every second product of a layer, whatever its module; nearest: []");
  refusals.add(!recompute.layers_per_stage.empty(), "recompute.layers_per_stage", "given",
               "all layers are recomputed or none; nearest: []");
  refusals.add(plan.workload.precision == DType::F16, "workload.precision", "fp16",
               "training.mixed_precision_param is bfloat16 or float32; nearest: bf16");
  refusals.add(plan.workload.fp8 != program::Float8Recipe::None, "workload.precision", "fp8",
               "Float8LinearConverter has scales of rows, not one of a tensor; nearest: bf16");
  refusals.add(optimizer.kind == OptimizerKind::Sgd, "workload.optimizer.kind", "sgd",
               "it has Adam and AdamW; nearest: adamw");
  refusals.add(optimizer.kind == OptimizerKind::Muon, "workload.optimizer.kind", "muon",
               "its DistMuon needs a layout for each weight, which is not written by this version; "
               "nearest: adamw");
  refusals.add(optimizer.clip_norm == 0, "workload.optimizer.clip_norm", 0,
               "training.max_norm always clips; nearest: a large one, such as 1e9");
}

}  // namespace

void refuse_for_torchtitan(Refusals& refusals, const Plan& plan) {
  refuse_own_techniques(refusals, plan);
  refuse_offloaded_parameters(refusals, plan);
  refuse_model(refusals, plan);
  refuse_tensor_parallel(refusals, plan);
  refuse_pipeline(refusals, plan);
  refuse_experts(refusals, plan);
  refuse_sharding(refusals, plan);
  refuse_training(refusals, plan);
}

}  // namespace meshplan::planner::torchtitan
