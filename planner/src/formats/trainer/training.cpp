#include "formats/trainer/training.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "core/line.hpp"
#include "formats/accelerate/accelerate.hpp"
#include "formats/deepspeed/deepspeed.hpp"
#include "formats/text/hugging_face_models.hpp"
#include "formats/text/imported.hpp"

namespace meshplan::planner::trainer {
namespace {

using program::Plan;
using program::StateDType;

void set_model(const ImportRequest& request, const Training& training, ImportedPlan& imported) {
  if (request.model) {
    imported.plan.model = *request.model;
    imported.assumptions.push_back(
        fmt::format("the model given; the file names {}", short_line(training.model)));
    return;
  }
  NamedModel model = named_model(request, training.model, training.model_key);
  if (model.is_quantized && (training.adapters.kind.empty() || training.adapters.base_bits > 8))
    throw ConfigError(fmt::format(
        "{}: {}: {} has weights of few bits, which only adapters train over, and nothing says how "
        "many (quantization_bit, load_in_4bit): expected a checkpoint in 16 or 32 bits",
        request.main, training.model_key, short_line(training.model)));
  imported.plan.model = std::move(model.spec);
  imported.assumptions.push_back(
      fmt::format("model: {} ({})", short_line(training.model), model.why));
}

/// Of TrainingArguments' `optim` those that are AdamW or SGD, with moments in fp32 or in 8 bits.
void read_optimizer_name(const Settings& in, const Training& training, ImportedPlan& imported) {
  const std::string name = training.arguments.text("optim").value_or("adamw_torch");
  constexpr std::array<std::string_view, 8> kPlain = {
      "adamw_torch",      "adamw_torch_fused", "adamw_hf",          "adamw_torch_xla",
      "adamw_apex_fused", "paged_adamw",       "paged_adamw_32bit", "sgd"};
  constexpr std::array<std::string_view, 5> kEightBits = {
      "adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit", "adamw_torch_8bit", "ao_adamw_8bit"};
  const bool few_bits = std::ranges::find(kEightBits, name) != kEightBits.end();
  if (!few_bits && std::ranges::find(kPlain, name) == kPlain.end())
    throw ConfigError(fmt::format(
        "{}: optimizer '{}': a plan has AdamW, with moments in fp32 or 8 bits, and SGD; "
        "nearest: adamw_torch",
        in.file(), short_line(name)));
  if (few_bits) {
    program::StackSettings& settings = imported.plan.stack.settings;
    settings.first_moment_dtype = settings.second_moment_dtype = StateDType::Fp8;
    imported.assumptions.push_back(
        fmt::format("{}: moments of one byte; the scales of their blocks are left out", name));
  }
  if (name.starts_with("paged"))
    imported.assumptions.push_back(
        fmt::format("{}: its pages stay on the GPU, as long as they fit", name));
}

void apply_state(const Training& training, ImportedPlan& imported) {
  Plan& plan = imported.plan;
  program::StackSettings& settings = plan.stack.settings;
  const bool is_whole = training.distributed.value("distributed_type", "") == "MULTI_GPU";
  if (!training.has_low_precision_state || !is_whole || !training.adapters.kind.empty() ||
      plan.workload.precision == DType::F32)
    return;
  const StateDType type =
      plan.workload.precision == DType::F16 ? StateDType::F16 : StateDType::BF16;
  settings.gradient_dtype = type;
  if (!settings.first_moment_dtype) settings.first_moment_dtype = type;
  if (!settings.second_moment_dtype) settings.second_moment_dtype = type;
  imported.assumptions.emplace_back(
      "the plan keeps a copy of the weights in fp32 (4 bytes each), as all plans in 16 bits do; "
      "here the optimizer changes the 16-bit weights themselves");
}

/// What the file states of how its stack computes, over what its distribution said.
void apply_settings(const Training& training, program::StackSettings& settings) {
  const program::StackSettings& given = training.settings;
  if (given.overlap_dp) settings.overlap_dp = given.overlap_dp;
  if (given.grouped_experts) settings.grouped_experts = given.grouped_experts;
  if (given.expert_dispatch) settings.expert_dispatch = given.expert_dispatch;
  if (given.attention) settings.attention = given.attention;
  if (given.compile) settings.compile = given.compile;
  if (given.loss) settings.loss = given.loss;
  if (given.fp8_scaling) settings.fp8_scaling = given.fp8_scaling;
  if (given.fp8_param_gather) settings.fp8_param_gather = given.fp8_param_gather;
}

}  // namespace

ImportedPlan plan_of_training(const ImportRequest& request, Settings& in, Training training) {
  ImportedPlan imported;
  set_model(request, training, imported);
  for (const std::string& line : training.assumptions) imported.assumptions.push_back(line);
  Settings distributed(training.distributed, in.file(), kDeepSpeedAuto);
  apply_accelerate(request, distributed, training.arguments, imported);
  Plan& plan = imported.plan;
  if (training.is_fp8) {
    if (plan.workload.precision == DType::F32)
      throw ConfigError(fmt::format("{}: fp8: needs bf16: true beside it", in.file()));
    program::set_precision(plan.workload, program::Precision::Fp8);
  }
  if (training.context && plan.parallel.cp > 1) plan.context_parallel = *training.context;
  plan.frozen = training.frozen;
  apply_adapters(in, training.adapters, imported);
  if (!plan.frozen.empty() && plan.zero_stage == 3) plan.stack.settings.shard_frozen = true;
  if (training.offloads_activations && plan.model.moe)
    throw ConfigError(
        fmt::format("{}: gradients' inputs in host memory (activation_offloading) are planned of "
                    "models without experts alone, and {} has some",
                    in.file(), short_line(training.model)));
  if (training.offloads_activations)
    plan.offload_activations = std::ranges::max(program::resolved_layers_per_stage(plan));
  read_optimizer_name(in, training, imported);
  apply_state(training, imported);
  apply_settings(training, plan.stack.settings);
  list_ignored(in, imported);
  std::erase_if(imported.ignored,  // keys that a template lists without a value
                [](const std::string& line) { return line.ends_with(" = null"); });
  return imported;
}

bool pass_on(Settings& in, std::string_view key, std::string_view argument, Training& training) {
  const Json* value = in.value(key);
  if (value == nullptr) return false;
  std::string text = value->is_string() ? value->get<std::string>() : value->dump();
  training.arguments.add(argument, std::move(text), fmt::format("{}: {}", in.file(), key));
  return true;
}

bool read_deepspeed_path(Settings& in, std::string_view key, Training& training) {
  const Json* value = in.value(key);
  if (value == nullptr || (value->is_boolean() && !value->get<bool>())) return false;
  if (!value->is_string() && !value->is_object())
    in.fail(key, "the path of a ds_config.json, or what it holds");
  training.distributed["distributed_type"] = "DEEPSPEED";
  training.distributed["deepspeed_config"]
                      [value->is_string() ? "deepspeed_config_file" : "deepspeed_config"] = *value;
  return true;
}

bool read_fsdp_section(Settings& in, Training& training) {
  const Json* options = in.value("fsdp");
  std::string words;
  if (options != nullptr && options->is_array())
    for (const Json& word : *options)
      words += " " + (word.is_string() ? word.get<std::string>() : "");
  if (options != nullptr && options->is_string()) words = options->get<std::string>();
  const bool has_section = in.has("fsdp_config") && !in.keys("fsdp_config").empty();
  const bool is_on = options != nullptr && options->is_boolean() && options->get<bool>();
  if (words.empty() && !has_section && !is_on) return false;
  Json section = Json::object();
  const auto has = [&](std::string_view word) { return words.find(word) != std::string::npos; };
  for (const auto& [word, strategy] :
       {std::pair{"full_shard", "FULL_SHARD"}, std::pair{"shard_grad_op", "SHARD_GRAD_OP"},
        std::pair{"no_shard", "NO_SHARD"}, std::pair{"hybrid_shard", "HYBRID_SHARD"},
        std::pair{"hybrid_shard_zero2", "HYBRID_SHARD_ZERO2"}})
    if (has(word)) section["fsdp_sharding_strategy"] = strategy;
  if (has("offload")) section["fsdp_offload_params"] = true;
  for (const char* const key : {"version", "offload_params", "reshard_after_forward",
                                "sharding_strategy", "activation_checkpointing"})
    for (const std::string& path :
         {fmt::format("fsdp_config.{}", key), fmt::format("fsdp_config.fsdp_{}", key)})
      if (const Json* value = in.value(path)) section[fmt::format("fsdp_{}", key)] = *value;
  if (const Json* version = in.value("fsdp_version")) section["fsdp_version"] = *version;
  training.distributed["distributed_type"] = "FSDP";
  training.distributed["fsdp_config"] = std::move(section);
  return true;
}

}  // namespace meshplan::planner::trainer
