// Megatron-LM and DeepSpeed under accelerate.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "formats/accelerate/accelerate.hpp"
#include "formats/accelerate/write_common.hpp"
#include "formats/deepspeed/deepspeed.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::planner {
namespace accelerate {
namespace {

using program::ContextMethod;
using program::Plan;
using program::RecomputeKind;
using program::ScheduleKind;

/// Layers of the last stage where all others hold as many as each other; absent: all are equal.
/// `expressible` is false for any other division.
struct LastStage {
  std::optional<int> layers;
  bool expressible = true;
};

LastStage last_stage_of(const Plan& plan) {
  const std::vector<int> layers = program::resolved_layers_per_stage(plan);
  const bool rest_equal =
      std::all_of(layers.begin(), layers.end() - 1, [&](int each) { return each == layers[0]; });
  if (layers.back() == layers.front() && rest_equal) return {};
  return {layers.back(), rest_equal};
}

void refuse_for_plugin(Refusals& refusals, const Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  refusals.add(p.pp > 1 && plan.schedule != ScheduleKind::OneFOneB, "schedule",
               meshplan::name_of(plan.schedule),
               "the file has no setting of virtual stages or schedules; nearest: 1f1b");
  refusals.add(p.pp > 1 && p.vpp == 1 && !last_stage_of(plan).expressible, "layers_per_stage",
               fmt::format("[{}]", fmt::join(program::resolved_layers_per_stage(plan), ", ")),
               "megatron_lm_decoder_last_pipeline_num_layers sets the last stage alone apart; "
               "nearest: as many layers on all others");
  refusals.add(p.cp > 1 && plan.context_parallel != ContextMethod::Ring, "context_parallel",
               meshplan::name_of(plan.context_parallel),
               "keys travel in Megatron's ring; nearest: ring");
  refusals.add(plan.zero_stage > 1, "zero_stage", plan.zero_stage,
               "megatron_lm_use_distributed_optimizer is ZeRO 1; nearest: 1");
  refusals.add(plan.zero_shard_group > 0, "zero_shard_group", plan.zero_shard_group,
               "the optimizer is divided over all of dp * cp; nearest: 0");
  refusals.add(plan.recompute.kind != RecomputeKind::Full, "recompute.kind",
               meshplan::name_of(plan.recompute.kind),
               "the plugin recomputes whole layers unless told 'selective', which Megatron-LM then "
               "refuses beside the plugin's recompute_method (utils/dataclasses.py); nearest: "
               "full");
  refusals.add(!plan.recompute.layers_per_stage.empty(), "recompute.layers_per_stage", "given",
               "megatron_lm_recompute_num_layers is one number for all stages; nearest: []");
  refusals.add(plan.workload.fp8 != program::Float8Recipe::None, "workload.precision", "fp8",
               "the plugin passes bf16 or fp16 on; nearest: bf16");
  refuse_other_order(refusals, plan, "tp-cp-ep-dp-pp");
}

Json plugin_section(const Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  Json section = {{"megatron_lm_tp_degree", p.tp},
                  {"megatron_lm_pp_degree", p.pp},
                  {"megatron_lm_num_micro_batches", plan.num_microbatches()},
                  {"megatron_lm_sequence_parallelism", p.sp},
                  // absent, the plugin takes 2
                  {"megatron_lm_context_parallel_size", p.cp},
                  {"megatron_lm_expert_model_parallel_size", p.ep},
                  {"megatron_lm_expert_tensor_parallel_size", p.etp},
                  {"megatron_lm_use_distributed_optimizer", plan.zero_stage == 1},
                  {"megatron_lm_optimizer_cpu_offload", plan.offload_optimizer},
                  {"megatron_lm_gradient_clipping", plan.workload.optimizer.clip_norm},
                  {"megatron_lm_recompute_granularity", "full"}};
  const bool some = plan.recompute.num_layers.has_value();
  section["megatron_lm_recompute_method"] = some ? "block" : "uniform";
  section["megatron_lm_recompute_num_layers"] = plan.recompute.num_layers.value_or(1);
  if (const auto last = last_stage_of(plan).layers; p.pp > 1 && last)
    section["megatron_lm_decoder_last_pipeline_num_layers"] = *last;
  return section;
}

}  // namespace
}  // namespace accelerate

std::vector<ExportedFile> write_accelerate_megatron(const ExportRequest& request) {
  Refusals refusals("accelerate with Megatron-LM");
  refuse_own_techniques(refusals, request.plan);
  refuse_offloaded_parameters(refusals, request.plan);
  accelerate::refuse_for_plugin(refusals, request.plan);
  accelerate::refuse_optimizer(refusals, request.plan);
  refusals.throw_if_any();
  Json configuration = accelerate::machine_section(request, "MEGATRON_LM");
  configuration["megatron_lm_config"] = accelerate::plugin_section(request.plan);
  return accelerate::folder_of(request, configuration,
                               "Megatron-LM must be on PYTHONPATH, and the plugin must know the "
                               "model's type (MODEL_CONFIGS_TO_MEGATRON_PARSERS).\n");
}

std::vector<ExportedFile> write_accelerate_deepspeed(const ExportRequest& request) {
  Refusals refusals("accelerate with DeepSpeed");
  refuse_for_deepspeed(refusals, request.plan);
  refusals.throw_if_any();
  require_rules_kept("deepspeed", request.plan);
  Json configuration = accelerate::machine_section(request, "DEEPSPEED");
  configuration.erase("mixed_precision");  // ds_config.json says it
  configuration["deepspeed_config"] = {{"deepspeed_config_file", "ds_config.json"},
                                       {"zero3_init_flag", request.plan.zero_stage == 3}};
  std::vector<ExportedFile> files =
      accelerate::folder_of(request, configuration,
                            "accelerate looks for `ds_config.json` from the folder where you are: "
                            "start it in this one.\n");
  files.push_back({.name = "ds_config.json", .text = deepspeed_configuration(request.plan)});
  return files;
}

}  // namespace meshplan::planner
