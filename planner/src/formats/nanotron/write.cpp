// A nanotron configuration out of a plan.
#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "formats/nanotron/nanotron.hpp"
#include "formats/text/launch_text.hpp"
#include "formats/text/quoting.hpp"
#include "formats/text/refusals.hpp"
#include "models/hugging_face.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::planner {
namespace nanotron {
namespace {

using program::ContextMethod;
using program::LearningRateSchedule;
using program::OptimizerConfig;
using program::OptimizerKind;
using program::Plan;
using program::RecomputeKind;
using program::ScheduleKind;

constexpr std::int64_t kMiB = 1 << 20;

/// What Hugging Face's Llama has a key for; nanotron's two classes are that, Qwen2Config with
/// biases of q, k and v.
models::ModelSpec without_qkv_bias(models::ModelSpec model) {
  model.qkv_bias = false;
  return model;
}

void refuse_model(Refusals& refusals, const Plan& plan) {
  const models::ModelSpec& model = plan.model;
  refusals.add(model.moe.has_value(), "model.moe", model.name,
               "experts of nanotron are not written by this version");
  refusals.add(model.rope_scaling.has_value(), "model.rope_scaling", model.name,
               "its rotary embeddings read no scaling (nn/rotary.py); nearest: null");
  refusals.add(model.head_size * model.num_heads != model.hidden_size, "model.head_size",
               model.head_size,
               fmt::format("is hidden_size / num_heads; nearest: {}",
                           model.hidden_size / std::max(1, model.num_heads)));
  if (model.moe) return;
  try {
    models::ModelSpec unscaled = without_qkv_bias(model);
    unscaled.rope_scaling.reset();
    models::export_hugging_face(unscaled, "llama");
  } catch (const ConfigError& error) {
    refusals.add(true, "model", model.name,
                 fmt::format("it trains Llamas and Qwen2s; {}", error.what()));
  }
}

void refuse_parallel(Refusals& refusals, const Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  refusals.add(
      plan.model.num_kv_heads < p.tp, "parallel.tp", p.tp,
      fmt::format("model_config.num_key_value_heads ({}) must be at least tp "
                  "(config/config.py); nearest: {}",
                  plan.model.num_kv_heads, nearest_divisor(plan.model.num_kv_heads, p.tp)));
  refusals.add(p.ep > 1, "parallel.ep", p.ep, "expert ranks are not written by this version");
  refusals.add(
      p.pp > 1 && plan.schedule != ScheduleKind::OneFOneB && plan.schedule != ScheduleKind::GPipe,
      "schedule", meshplan::name_of(plan.schedule),
      "parallelism.pp_engine is 1f1b or afab (gpipe); nearest: 1f1b");
  refusals.add(p.pp > 1 && (!plan.layers_per_stage.empty() || plan.count_ends_as_layers),
               plan.count_ends_as_layers ? "count_ends_as_layers" : "layers_per_stage",
               plan.count_ends_as_layers ? "true" : "given",
               "stages are cut by cost, and no setting changes that (get_block_compute_costs); "
               "nearest: leave it out");
  refusals.add(p.cp > 1 && plan.context_parallel != ContextMethod::Ring, "context_parallel",
               meshplan::name_of(plan.context_parallel), "keys travel in a ring; nearest: ring");
  refusals.add(plan.zero_stage > 1, "zero_stage", plan.zero_stage,
               "optimizer.zero_stage is 0 or 1; nearest: 1");
  refusals.add(plan.zero_stage > 0 && p.cp > 1, "zero_stage", plan.zero_stage,
               fmt::format("with cp({}) the optimizer is divided over dp alone (helpers.py, "
                           "ZeroDistributedOptimizer), a plan's over dp * cp; nearest: 0",
                           p.cp));
  refusals.add(plan.zero_shard_group > 0, "zero_shard_group", plan.zero_shard_group,
               "the optimizer is divided over all of dp; nearest: 0");
  refuse_other_order(refusals, plan, "tp-cp-dp-pp");
}

void refuse_rest(Refusals& refusals, const Plan& plan) {
  const OptimizerConfig& optimizer = plan.workload.optimizer;
  const program::Recompute& recompute = plan.recompute;
  refusals.add(recompute.kind == RecomputeKind::Selective, "recompute.kind", "selective",
               "parallelism.recompute_layer takes whole layers; nearest: full");
  refusals.add(recompute.kind == RecomputeKind::Full && recompute.num_layers.has_value(),
               "recompute.num_layers", recompute.num_layers.value_or(0),
               "all layers are recomputed or none; nearest: null");
  refusals.add(!recompute.layers_per_stage.empty(), "recompute.layers_per_stage", "given",
               "all layers are recomputed or none; nearest: []");
  refusals.add(plan.offload_optimizer, "offload_optimizer", true,
               "the optimizer stays on the GPU; nearest: false");
  refusals.add(plan.workload.fp8 != program::Float8Recipe::None, "workload.precision", "fp8",
               "model.dtype has no FP8; nearest: bf16");
  refusals.add(plan.bucket_bytes % kMiB != 0, "bucket_bytes", plan.bucket_bytes,
               fmt::format("model.ddp_bucket_cap_mb is whole MiB; nearest: {}",
                           std::max(kMiB, plan.bucket_bytes / kMiB * kMiB)));
  const bool is_sgd = optimizer.kind == OptimizerKind::Sgd;
  refusals.add(!is_sgd && optimizer.kind != OptimizerKind::AdamW, "workload.optimizer.kind",
               meshplan::name_of(optimizer.kind),
               "optimizer_factory has adamW and sgd; nearest: adamw");
  refusals.add(is_sgd && optimizer.momentum != 0, "workload.optimizer.momentum", optimizer.momentum,
               "its SGD has none; nearest: 0");
  refusals.add(optimizer.schedule == LearningRateSchedule::Cosine && optimizer.decay_steps > 0 &&
                   optimizer.decay_steps <= optimizer.warmup_steps,
               "workload.optimizer.decay_steps", optimizer.decay_steps,
               fmt::format("decay begins after warmup_steps ({}); nearest: {}",
                           optimizer.warmup_steps, optimizer.warmup_steps + 1));
}

Json model_config(const Plan& plan) {
  const models::ModelSpec& model = plan.model;
  const Json all = Json::parse(models::export_hugging_face(without_qkv_bias(model), "llama"));
  const bool ring = plan.parallel.cp > 1;  // is in models/qwen.py alone
  Json config = {{ring || model.qkv_bias ? "is_qwen2_config" : "is_llama_config", true}};
  for (const char* key :
       {"hidden_act", "hidden_size", "initializer_range", "intermediate_size",
        "max_position_embeddings", "num_attention_heads", "num_hidden_layers",
        "num_key_value_heads", "rms_norm_eps", "rope_theta", "tie_word_embeddings", "vocab_size"})
    config[key] = all.at(key);
  config["attention_bias"] = model.qkv_bias;
  config["_attn_implementation"] = ring ? "ring_flash_triton" : "flash_attention_2";
  return config;
}

Json optimizer_section(const Plan& plan) {
  const OptimizerConfig& optimizer = plan.workload.optimizer;
  Json factory = {{"name", "sgd"}};
  if (optimizer.kind != OptimizerKind::Sgd)
    factory = {{"name", "adamW"},
               {"adam_beta1", optimizer.beta1},
               {"adam_beta2", optimizer.beta2},
               {"adam_eps", optimizer.epsilon},
               {"torch_adam_is_fused", true}};
  const bool decays = optimizer.schedule == LearningRateSchedule::Cosine;
  const Json decay_steps = decays && optimizer.decay_steps > 0
                               ? Json(optimizer.decay_steps - optimizer.warmup_steps)
                               : Json(nullptr);
  return {{"optimizer_factory", factory},
          {"zero_stage", plan.zero_stage},
          {"weight_decay", optimizer.weight_decay},
          {"clip_grad", optimizer.clip_norm > 0 ? Json(optimizer.clip_norm) : Json(nullptr)},
          {"accumulate_grad_in_fp32", true},
          {"learning_rate_scheduler",
           {{"learning_rate", optimizer.learning_rate},
            {"lr_warmup_steps", optimizer.warmup_steps},
            {"lr_warmup_style", "linear"},
            {"lr_decay_style", "cosine"},
            {"lr_decay_steps", decay_steps},
            {"min_decay_lr", decays ? optimizer.learning_rate * optimizer.minimum_ratio
                                    : optimizer.learning_rate}}}};
}

Json configuration(const ExportRequest& request) {
  const Plan& plan = request.plan;
  const program::ParallelConfig& p = plan.parallel;
  const DType precision = plan.workload.precision;
  Json data = {{"dataset", nullptr}, {"num_loading_workers", 1}, {"seed", 42}};
  Json stages = Json::array();
  stages.push_back({{"name", "training"}, {"start_training_step", 1}, {"data", data}});
  return {{"general", {{"project", "meshplan"}, {"run", plan.model.name + "_%date"}, {"seed", 42}}},
          {"parallelism",
           {{"dp", p.dp},
            {"tp", p.tp},
            {"pp", p.pp},
            {"context_parallel_size", p.cp},
            {"expert_parallel_size", 1},
            {"pp_engine", plan.schedule == ScheduleKind::GPipe ? "afab" : "1f1b"},
            {"tp_mode", p.sp ? "REDUCE_SCATTER" : "ALL_REDUCE"},
            {"tp_linear_async_communication", false},
            {"tp_recompute_allgather", true},
            {"recompute_layer", plan.recompute.kind == RecomputeKind::Full}}},
          {"model",
           {{"model_config", model_config(plan)},
            {"init_method", {{"std", plan.model.init_std}}},
            {"dtype", precision == DType::F32   ? "float32"
                      : precision == DType::F16 ? "float16"
                                                : "bfloat16"},
            {"make_vocab_size_divisible_by", 1},
            {"ddp_bucket_cap_mb", plan.bucket_bytes / kMiB}}},
          {"optimizer", optimizer_section(plan)},
          {"tokens",
           {{"sequence_length", plan.workload.seq_len},
            {"micro_batch_size", plan.micro_batch_size},
            {"batch_accumulation_per_replica", plan.num_microbatches()},
            {"train_steps", steps_of_run(plan)}}},
          {"tokenizer", {{"tokenizer_name_or_path", nullptr}}},
          {"checkpoints", {{"checkpoints_path", "checkpoints"}, {"checkpoint_interval", 1000}}},
          {"data_stages", stages}};
}

}  // namespace
}  // namespace nanotron

std::vector<ExportedFile> write_nanotron(const ExportRequest& request) {
  Refusals refusals("nanotron");
  refuse_own_techniques(refusals, request.plan);
  refuse_offloaded_parameters(refusals, request.plan);
  nanotron::refuse_model(refusals, request.plan);
  nanotron::refuse_parallel(refusals, request.plan);
  nanotron::refuse_rest(refusals, request.plan);
  refusals.throw_if_any();
  require_rules_kept("nanotron", request.plan);
  const std::string launch =
      script_head("Starts the training on this node; on every node with its own NODE_RANK.",
                  "NANOTRON_PATH=/path/to/nanotron ./run.sh") +
      "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" + torchrun_text(request) +
      "  \"${NANOTRON_PATH:-.}/run_train.py\" \\\n"
      "  --config-file \"$here/nanotron.yaml\" \"$@\"\n";
  return {{.name = "nanotron.yaml", .text = yaml_document(nanotron::configuration(request))},
          {.name = "run.sh", .text = launch, .executable = true},
          {.name = "README.md",
           .text = starting_text(request, "run.sh",
                                 "`data_stages` has no dataset, so tokens are made up, and "
                                 "`train_steps` is a guess: the plan says\nneither. nanotron cuts "
                                 "stages by cost; the plan leaves that to it. Written against "
                                 "nanotron at 2411b022.\n")}};
}

}  // namespace meshplan::planner
