// A ds_config.json out of a plan.
#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/quoting.hpp"
#include "formats/deepspeed/deepspeed.hpp"
#include "formats/text/launch_text.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::planner {
namespace deepspeed {
namespace {

using program::ContextMethod;
using program::LearningRateSchedule;
using program::OptimizerConfig;
using program::OptimizerKind;
using program::Plan;
using program::RecomputeKind;

/// Bytes of an element of a gradient bucket: gradients travel in the precision of training.
std::int64_t gradient_bytes(const Plan& plan) {
  return size_of(plan.workload.precision);
}

void refuse_parallel(Refusals& refusals, const Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  refusals.add(p.pp > 1, "parallel.pp", p.pp,
               "stages are built in Python (PipelineModule), ds_config.json has none; nearest: 1");
  refusals.add(p.tp > 1 && p.sp, "parallel.sp", true,
               "AutoTP (tensor_parallel.autotp_size) keeps all tokens on every rank; nearest: "
               "false");
  refusals.add(plan.model.num_kv_heads % p.tp != 0, "parallel.tp", p.tp,
               fmt::format("AutoTP cuts num_kv_heads ({}); nearest: {}", plan.model.num_kv_heads,
                           nearest_divisor(std::max(1, plan.model.num_kv_heads), p.tp)));
  refusals.add(p.cp > 1 && plan.context_parallel != ContextMethod::Ulysses, "context_parallel",
               meshplan::name_of(plan.context_parallel),
               "sequence_parallel_size exchanges heads for tokens; nearest: ulysses");
  refusals.add(p.cp > 1 && p.tp > 1, "parallel.cp", p.cp,
               fmt::format("sequence_parallel_size is not beside tp({}); nearest: 1", p.tp));
  refusals.add(p.ep > 1 && (p.tp > 1 || p.cp > 1), "parallel.ep", p.ep,
               "AutoEP (expert_parallel.autoep_size) is not beside tp or cp; nearest: 1");
  refusals.add(p.etp > 1, "parallel.etp", p.etp,
               "expert_parallel.expert_tensor_parallel_size accepts 1 only; nearest: 1");
  refuse_other_order(refusals, plan, "tp-cp-ep-dp-pp");
}

void refuse_memory(Refusals& refusals, const Plan& plan) {
  const program::Recompute& recompute = plan.recompute;
  refusals.add(recompute.kind == RecomputeKind::Selective, "recompute.kind", "selective",
               "activation_checkpointing keeps the inputs of whole layers; nearest: full");
  refusals.add(recompute.kind == RecomputeKind::Full &&
                   (recompute.num_layers.has_value() || !recompute.layers_per_stage.empty()),
               "recompute.num_layers", recompute.num_layers.value_or(0),
               "the model's code says which layers; nearest: null");
  refusals.add(
      plan.zero_shard_group > 0 && plan.zero_stage != 3, "zero_shard_group", plan.zero_shard_group,
      fmt::format("mics_shard_size is for zero_stage 3, not {}; nearest: 0", plan.zero_stage));
  refusals.add(plan.zero_shard_group > 0 && plan.parallel.ep > 1, "zero_shard_group",
               plan.zero_shard_group, "AutoEP is not beside mics_shard_size; nearest: 0");
  refusals.add(plan.offload_optimizer && plan.zero_stage == 0, "offload_optimizer", true,
               "zero_optimization.offload_optimizer needs zero_stage 1 or more; nearest: false");
  refusals.add(plan.bucket_bytes % gradient_bytes(plan) != 0, "bucket_bytes", plan.bucket_bytes,
               fmt::format("reduce_bucket_size counts elements of {} bytes; nearest: {}",
                           gradient_bytes(plan),
                           plan.bucket_bytes / gradient_bytes(plan) * gradient_bytes(plan)));
  refusals.add(plan.workload.fp8 != program::Float8Recipe::None, "workload.precision", "fp8",
               "has bf16, fp16 and fp32; nearest: bf16");
}

Json zero_section(const Plan& plan) {
  // As predicted: the profile that prices the lower stages overlaps nothing.
  const bool overlaps = plan.zero_stage >= 2;
  Json zero = {{"stage", plan.zero_stage},
               {"overlap_comm", overlaps},
               {"contiguous_gradients", true},
               {"reduce_scatter", true},
               {"reduce_bucket_size", plan.bucket_bytes / gradient_bytes(plan)}};
  if (plan.offload_optimizer) zero["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
  if (plan.offload_parameters) zero["offload_param"] = {{"device", "cpu"}, {"pin_memory", true}};
  if (plan.stack.settings.live_parameters)
    zero["stage3_max_live_parameters"] = *plan.stack.settings.live_parameters;
  if (plan.zero_shard_group > 0) zero["mics_shard_size"] = plan.zero_shard_group;
  return zero;
}

Json optimizer_section(const OptimizerConfig& optimizer) {
  Json params = {{"lr", optimizer.learning_rate}, {"weight_decay", optimizer.weight_decay}};
  if (optimizer.kind == OptimizerKind::Sgd) {
    params["momentum"] = optimizer.momentum;
    return {{"type", "SGD"}, {"params", params}};
  }
  params["betas"] = {optimizer.beta1, optimizer.beta2};
  params["eps"] = optimizer.epsilon;
  const bool decoupled = optimizer.kind == OptimizerKind::AdamW;
  params["adam_w_mode"] = decoupled;  // else its Adam is AdamW, too
  return {{"type", decoupled ? "AdamW" : "Adam"}, {"params", params}};
}

Json scheduler_section(const Plan& plan) {
  const OptimizerConfig& optimizer = plan.workload.optimizer;
  Json params = {{"warmup_num_steps", optimizer.warmup_steps}, {"warmup_type", "linear"}};
  if (optimizer.schedule == LearningRateSchedule::Constant) {
    params["warmup_max_lr"] = optimizer.learning_rate;
    return {{"type", "WarmupLR"}, {"params", params}};
  }
  params["total_num_steps"] = steps_of_run(plan);
  params["cos_min_ratio"] = optimizer.minimum_ratio;
  return {{"type", "WarmupCosineLR"}, {"params", params}};
}

}  // namespace
}  // namespace deepspeed

void refuse_for_deepspeed(Refusals& refusals, const program::Plan& plan) {
  refuse_own_techniques(refusals, plan);
  deepspeed::refuse_parallel(refusals, plan);
  deepspeed::refuse_memory(refusals, plan);
  refusals.add(plan.workload.optimizer.kind == program::OptimizerKind::Muon,
               "workload.optimizer.kind", "muon", "not written by this version; nearest: adamw");
}

std::string deepspeed_configuration(const program::Plan& plan) {
  const program::OptimizerConfig& optimizer = plan.workload.optimizer;
  const program::ParallelConfig& p = plan.parallel;
  Json config = {{"train_batch_size", plan.workload.global_batch_size},
                 {"train_micro_batch_size_per_gpu", plan.micro_batch_size},
                 {"gradient_accumulation_steps", plan.num_microbatches()},
                 {"gradient_clipping", optimizer.clip_norm}};
  if (plan.workload.precision == DType::BF16) config["bf16"] = {{"enabled", true}};
  if (plan.workload.precision == DType::F16) config["fp16"] = {{"enabled", true}};
  config["zero_optimization"] = deepspeed::zero_section(plan);
  config["optimizer"] = deepspeed::optimizer_section(optimizer);
  if (optimizer.kind == program::OptimizerKind::Sgd && plan.zero_stage > 0)
    config["zero_allow_untested_optimizer"] = true;
  config["scheduler"] = deepspeed::scheduler_section(plan);
  if (plan.recompute.kind == program::RecomputeKind::Full)
    config["activation_checkpointing"] = {{"partition_activations", false},
                                          {"contiguous_memory_optimization", false},
                                          {"number_checkpoints", plan.model.num_layers}};
  if (p.tp > 1) config["tensor_parallel"] = {{"autotp_size", p.tp}};
  if (p.cp > 1) config["sequence_parallel_size"] = p.cp;
  if (p.ep > 1) config["expert_parallel"] = {{"enabled", true}, {"autoep_size", p.ep}};
  return config.dump(2) + "\n";
}

std::vector<ExportedFile> write_deepspeed(const ExportRequest& request) {
  Refusals refusals("DeepSpeed");
  refuse_for_deepspeed(refusals, request.plan);
  refusals.throw_if_any();
  require_rules_kept("deepspeed", request.plan);
  std::string launch =
      script_head("Starts the training on this node; on every node with its own NODE_RANK.",
                  "TRAIN=train.py ./run.sh --model_name_or_path ...") +
      torchrun_text(request) +
      "  \"${TRAIN:?is the training script, one on the Trainer of Hugging Face}\" \\\n"
      "  --deepspeed \"$here/ds_config.json\"";
  launch += trainer_words(request.plan);
  std::string notes =
      "TRAIN is your script; its model, data and number of steps are not in the plan.\n";
  if (request.plan.recompute.kind == program::RecomputeKind::Full)
    notes +=
        "`activation_checkpointing` says how layers are recomputed; that they are is said in the "
        "script\n(`--gradient_checkpointing` of the Trainer, or deepspeed.checkpointing).\n";
  notes += "Written against DeepSpeed at edaa7221.\n";
  return {{.name = "ds_config.json", .text = deepspeed_configuration(request.plan)},
          {.name = "run.sh", .text = launch, .executable = true},
          {.name = "README.md", .text = starting_text(request, "run.sh", notes)}};
}

}  // namespace meshplan::planner
