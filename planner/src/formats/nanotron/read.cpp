// A plan out of a nanotron configuration.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

#include "formats/nanotron/nanotron.hpp"
#include "formats/text/documents.hpp"
#include "formats/text/imported.hpp"
#include "formats/text/script_arguments.hpp"
#include "models/hugging_face.hpp"

namespace meshplan::planner {
namespace nanotron {
namespace {

using program::LearningRateSchedule;
using program::OptimizerConfig;
using program::OptimizerKind;
using program::Plan;

constexpr std::array<std::string_view, 2> kEngines = {"1f1b", "afab"};
constexpr std::array<std::string_view, 2> kTpModes = {"ALL_REDUCE", "REDUCE_SCATTER"};
constexpr std::array<std::string_view, 3> kDTypes = {"bfloat16", "float32", "float16"};
constexpr std::array<std::string_view, 2> kOptimizers = {"adamW", "sgd"};
constexpr std::array<std::string_view, 3> kDecays = {"cosine", "linear", "1-sqrt"};
constexpr std::array<std::string_view, 6> kAttentions = {
    "flash_attention_2", "flex_attention", "sdpa",
    "ring_flash_triton", "ring",           "llama3_ring_attention"};

/// nanotron's classes have the keys of a Hugging Face config, with their own defaults.
const Json& model_defaults() {
  static const Json kDefaults = {
      {"model_type", "llama"},     {"hidden_act", "silu"},       {"hidden_size", 4096},
      {"initializer_range", 0.02}, {"intermediate_size", 11008}, {"max_position_embeddings", 2048},
      {"num_attention_heads", 32}, {"num_hidden_layers", 32},    {"num_key_value_heads", nullptr},
      {"rms_norm_eps", 1e-6},      {"rope_theta", 10000.0},      {"tie_word_embeddings", false},
      {"vocab_size", 32000}};
  return kDefaults;
}

class NanotronReader {
 public:
  explicit NanotronReader(const ImportRequest& request)
      : request_(request), in_(parse_yaml(main_text(request), request.main), request.main) {}

  ImportedPlan run() {
    result_.plan.stack.software = "nanotron";
    read_model();
    read_parallelism();
    read_tokens();
    read_optimizer();
    check_ranks(request_, plan(), "parallelism");
    if (plan().parallel.pp > 1)
      result_.assumptions.emplace_back(
          "layers_per_stage: nanotron cuts stages by cost (get_block_compute_costs); the plan "
          "leaves it open");
    list_ignored(in_, result_);
    return std::move(result_);
  }

 private:
  Plan& plan() { return result_.plan; }

  void need(std::string_view path) {
    if (!in_.has(path)) in_.fail(path, "a value: nanotron has no default for it");
  }

  void assume(std::string line) { result_.assumptions.push_back(std::move(line)); }

  /// A switch in model_config names the class that it is for: is_llama_config, is_qwen2_config, or
  /// one of examples with a model of their own.
  void refuse_other_models() {
    for (const std::string& key : in_.keys("model.model_config")) {
      const bool names_class = key.starts_with("is_") && key.ends_with("_config");
      if (!names_class || key == "is_llama_config" || key == "is_qwen2_config") continue;
      const std::string path = "model.model_config." + key;
      const Json* value = in_.value(path);
      if (value != nullptr && *value != Json(false))
        in_.fail(path, "is_llama_config or is_qwen2_config: no other model of nanotron is read");
    }
  }

  void read_model() {
    refuse_other_models();
    Json config = model_defaults();
    config.erase("num_key_value_heads");
    for (const auto& [key, initial] : model_defaults().items()) {
      if (key == "model_type") continue;
      const std::string path = "model.model_config." + key;
      if (const Json* value = in_.value(path))
        config[key] = *value;
      else if (!initial.is_null() && !request_.model)
        assume(fmt::format("{} = {} (nanotron's default)", path, initial.dump()));
    }
    if (in_.value("model.model_config.moe_config") != nullptr)
      in_.fail("model.model_config.moe_config",
               "null: nanotron's experts are not read by this version");
    models::ImportedModel model =
        models::import_hugging_face(config.dump(), request_.main + ": model.model_config");
    model.spec.name = "nanotron-model";
    // Its classes put attention_bias on q, k and v alone (models/qwen.py), Llama's on none.
    const bool biased = in_.flag("model.model_config.attention_bias").value_or(false);
    model.spec.qkv_bias = biased && in_.flag("model.model_config.is_qwen2_config").value_or(false);
    in_.flag("model.model_config.is_llama_config");
    if (const auto scaling = in_.value("model.model_config.rope_scaling"))
      result_.ignored.push_back(fmt::format(
          "model.model_config.rope_scaling = {} (nanotron reads none)", quoted(*scaling)));
    plan().model = std::move(model.spec);
    prefer_given_model(request_, result_);
    const auto type = in_.word("model.dtype", kDTypes);
    if (!type) assume("workload.precision = bf16 (nanotron's default)");
    plan().workload.precision = !type || *type == "bfloat16" ? DType::BF16
                                : *type == "float32"         ? DType::F32
                                                             : DType::F16;
    plan().bucket_bytes = in_.integer("model.ddp_bucket_cap_mb", between(1, 1 << 20)).value_or(25)
                          << 20;
  }

  void read_parallelism() {
    program::ParallelConfig& p = plan().parallel;
    for (const auto& [key, degree] :
         {std::pair{"dp", &p.dp}, std::pair{"tp", &p.tp}, std::pair{"pp", &p.pp}}) {
      const std::string path = fmt::format("parallelism.{}", key);
      need(path);
      *degree = in_.small(path).value_or(1);
    }
    p.cp = in_.small("parallelism.context_parallel_size").value_or(1);
    if (const int ep = in_.small("parallelism.expert_parallel_size").value_or(1); ep != 1)
      in_.fail("parallelism.expert_parallel_size",
               "1: it comes on top of the other degrees, without experts for nothing");
    plan().context_parallel = program::ContextMethod::Ring;
    in_.word("model.model_config._attn_implementation", kAttentions);
    const auto engine = in_.word("parallelism.pp_engine", kEngines);
    if (!engine && p.pp > 1) assume("schedule = gpipe (nanotron's default, afab)");
    plan().schedule = engine && *engine == "1f1b" ? program::ScheduleKind::OneFOneB
                                                  : program::ScheduleKind::GPipe;
    if (p.pp == 1) plan().schedule = program::ScheduleKind::OneFOneB;
    const auto mode = in_.word("parallelism.tp_mode", kTpModes);
    if (!mode && p.tp > 1) assume("parallel.sp = false (nanotron's default, ALL_REDUCE)");
    p.sp = p.tp > 1 && mode && *mode == "REDUCE_SCATTER";
    const bool recomputes = in_.flag("parallelism.recompute_layer").value_or(false);
    plan().recompute.kind =
        recomputes ? program::RecomputeKind::Full : program::RecomputeKind::None;
    if (const auto async = in_.flag("parallelism.tp_linear_async_communication"))
      result_.plan.stack.settings.overlap_tp = *async;
  }

  void read_tokens() {
    for (const char* path : {"tokens.sequence_length", "tokens.micro_batch_size",
                             "tokens.batch_accumulation_per_replica"})
      need(path);
    const Bounds bounds = between(1, limits::kTokens);
    plan().workload.seq_len = in_.integer("tokens.sequence_length", bounds).value_or(1);
    plan().micro_batch_size = in_.small("tokens.micro_batch_size", bounds).value_or(1);
    const std::int64_t accumulation =
        in_.integer("tokens.batch_accumulation_per_replica", bounds).value_or(1);
    plan().workload.global_batch_size =
        sequences_of_step(plan().micro_batch_size, plan().parallel.dp, accumulation, request_.main);
    result_.facts["accumulation"] = accumulation;
  }

  void read_optimizer() {
    const auto stage = in_.small("optimizer.zero_stage", between(0, 1));
    if (!stage) assume("zero_stage = 0 (the file has none)");
    plan().zero_stage = stage.value_or(0);
    if (plan().zero_stage > 0 && plan().parallel.cp > 1)
      assume("zero_stage = 1 over dp * cp; nanotron divides the optimizer over dp alone");
    if (const auto fp32 = in_.flag("optimizer.accumulate_grad_in_fp32"))
      result_.plan.stack.settings.gradient_dtype =
          *fp32 ? program::StateDType::F32 : program::StateDType::BF16;
    OptimizerConfig& optimizer = plan().workload.optimizer;
    const auto kind = in_.word("optimizer.optimizer_factory.name", kOptimizers);
    if (kind && *kind == "sgd") {
      optimizer.kind = OptimizerKind::Sgd;
      optimizer.momentum = 0;
    }
    take("optimizer.optimizer_factory.adam_beta1", optimizer.beta1);
    take("optimizer.optimizer_factory.adam_beta2", optimizer.beta2);
    take("optimizer.optimizer_factory.adam_eps", optimizer.epsilon);
    take("optimizer.weight_decay", optimizer.weight_decay);
    optimizer.clip_norm = in_.number("optimizer.clip_grad").value_or(0);
    read_learning_rate(optimizer);
  }

  void take(std::string_view path, double& value) {
    if (const auto given = in_.number(path)) value = *given;
  }

  void read_learning_rate(OptimizerConfig& optimizer) {
    const std::string at = "optimizer.learning_rate_scheduler.";
    take(at + "learning_rate", optimizer.learning_rate);
    optimizer.warmup_steps =
        in_.small(at + "lr_warmup_steps", between(0, limits::kTokens)).value_or(0);
    const auto decay = in_.small(at + "lr_decay_steps", between(0, limits::kTokens));
    const double least = in_.number(at + "min_decay_lr").value_or(optimizer.learning_rate);
    in_.word(at + "lr_decay_style", kDecays);
    if (least == optimizer.learning_rate) {
      optimizer.schedule = LearningRateSchedule::Constant;
      return;
    }
    optimizer.schedule = LearningRateSchedule::Cosine;
    const double ratio = optimizer.learning_rate > 0 ? least / optimizer.learning_rate : 0;
    optimizer.minimum_ratio = std::min(1.0, std::round(ratio * 1e12) / 1e12);
    const std::int64_t end = std::int64_t{decay.value_or(0)} + optimizer.warmup_steps;
    if (decay) optimizer.decay_steps = static_cast<int>(std::min<std::int64_t>(end, INT32_MAX));
  }

  const ImportRequest& request_;
  Settings in_;
  ImportedPlan result_;
};

}  // namespace
}  // namespace nanotron

ImportedPlan read_nanotron(const ImportRequest& request) {
  return nanotron::NanotronReader(request).run();
}

bool recognizes_nanotron(std::string_view name, std::string_view text) {
  return has_ending(name, {".yaml", ".yml"}) &&
         text.find("\nparallelism:") != std::string_view::npos &&
         text.find("model_config:") != std::string_view::npos;
}

}  // namespace meshplan::planner
