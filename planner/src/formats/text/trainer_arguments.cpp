// Arguments as transformers.TrainingArguments names them.
#include <algorithm>
#include <fmt/format.h>

#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "core/quoting.hpp"
#include "formats/text/launch_text.hpp"
#include "formats/text/quoting.hpp"
#include "formats/text/script_arguments.hpp"

namespace meshplan::planner {
namespace {

using program::LearningRateSchedule;
using program::OptimizerConfig;
using program::OptimizerKind;
using program::Plan;

constexpr std::int64_t kAssumedSequence = 4096;

/// Names under which scripts take the length of a sequence.
constexpr std::string_view kSequenceNames[] = {"max_seq_length", "max_length", "seq_length",
                                               "seq_len",        "block_size", "model_max_length"};

}  // namespace

void apply_optimizer_arguments(const ScriptArguments& arguments, OptimizerConfig& optimizer) {
  const auto take = [&](std::string_view name, double& value) {
    if (const auto given = arguments.number(name)) value = *given;
  };
  take("learning_rate", optimizer.learning_rate);
  take("adam_beta1", optimizer.beta1);
  take("adam_beta2", optimizer.beta2);
  take("adam_epsilon", optimizer.epsilon);
  take("weight_decay", optimizer.weight_decay);
  take("max_grad_norm", optimizer.clip_norm);
  if (const auto name = arguments.text("optim"); name && name->starts_with("sgd")) {
    optimizer.kind = OptimizerKind::Sgd;
    optimizer.momentum = 0;
  }
  if (const auto steps = arguments.integer("warmup_steps", 0, limits::kTokens))
    optimizer.warmup_steps = static_cast<int>(*steps);
  const auto type = arguments.text("lr_scheduler_type");
  if (type && type->starts_with("constant")) optimizer.schedule = LearningRateSchedule::Constant;
  if (const auto text = arguments.text("lr_scheduler_kwargs")) {
    const Json options = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (options.is_object() && options.contains("min_lr_rate") &&
        options["min_lr_rate"].is_number())
      optimizer.minimum_ratio = std::clamp(options["min_lr_rate"].get<double>(), 0.0, 1.0);
  }
}

std::vector<std::string> trainer_arguments(const Plan& plan, int steps) {
  const OptimizerConfig& optimizer = plan.workload.optimizer;
  std::vector<std::string> words;
  const auto add = [&](std::string_view name, std::string value) {
    words.push_back(fmt::format("--{}", name));
    words.push_back(std::move(value));
  };
  add("per_device_train_batch_size", std::to_string(plan.micro_batch_size));
  add("gradient_accumulation_steps", std::to_string(plan.num_microbatches()));
  add("max_seq_length", std::to_string(plan.workload.seq_len));
  add("max_steps", std::to_string(steps));
  add("optim", optimizer.kind == OptimizerKind::Sgd ? "sgd" : "adamw_torch_fused");
  add("learning_rate", python_number(optimizer.learning_rate));
  add("weight_decay", python_number(optimizer.weight_decay));
  add("adam_beta1", python_number(optimizer.beta1));
  add("adam_beta2", python_number(optimizer.beta2));
  add("adam_epsilon", python_number(optimizer.epsilon));
  add("max_grad_norm", python_number(optimizer.clip_norm));
  add("warmup_steps", std::to_string(optimizer.warmup_steps));
  if (optimizer.schedule == LearningRateSchedule::Constant) {
    add("lr_scheduler_type", "constant_with_warmup");
  } else {
    add("lr_scheduler_type", "cosine_with_min_lr");
    add("lr_scheduler_kwargs",
        fmt::format("{{\"min_lr_rate\": {}}}", python_number(optimizer.minimum_ratio)));
  }
  return words;
}

std::int64_t sequences_of_step(std::int64_t micro_batch_size, std::int64_t dp,
                               std::int64_t accumulation, std::string_view file) {
  const double sequences = static_cast<double>(micro_batch_size) * static_cast<double>(dp) *
                           static_cast<double>(accumulation);
  if (sequences > static_cast<double>(limits::kTokens))
    throw ConfigError(
        fmt::format("{}: micro-batches of {} sequences * {} of them a step * dp({}) = {:.3g} "
                    "sequences; at most "
                    "{} are planned",
                    file, micro_batch_size, accumulation, dp, sequences, limits::kTokens));
  return micro_batch_size * dp * accumulation;
}

void apply_sequence_argument(const ScriptArguments& arguments, ImportedPlan& imported) {
  Plan& plan = imported.plan;
  for (const std::string& line : arguments.unknown())
    imported.assumptions.push_back(line + "; left out");
  std::optional<std::int64_t> seq_len;
  for (const std::string_view name : kSequenceNames)
    if (!seq_len) seq_len = arguments.integer(name, 1, limits::kTokens);
  if (!seq_len) {
    seq_len = plan.model.max_positions > 0
                  ? std::min<std::int64_t>(kAssumedSequence, plan.model.max_positions)
                  : kAssumedSequence;
    imported.assumptions.push_back(
        fmt::format("workload.seq_len = {} (no script says it)", *seq_len));
  }
  plan.workload.seq_len = *seq_len;
}

std::string trainer_words(const Plan& plan) {
  const std::vector<std::string> words = trainer_arguments(plan, steps_of_run(plan));
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i % 2 == 0 ? " \\\n  " : " ") + shell_quoted(words[i]);
  return text + " \"$@\"\n";
}

void apply_trainer_arguments(const ScriptArguments& arguments, std::optional<int> accumulation,
                             std::string_view file, ImportedPlan& imported) {
  apply_sequence_argument(arguments, imported);
  Plan& plan = imported.plan;
  std::vector<std::string>& assumptions = imported.assumptions;
  const auto micro = arguments.integer("per_device_train_batch_size", 1, limits::kTokens);
  plan.micro_batch_size = static_cast<int>(micro.value_or(1));
  if (!micro) assumptions.emplace_back("micro_batch_size = 1 (no script says it)");
  const auto steps = arguments.integer("gradient_accumulation_steps", 1, limits::kTokens);
  if (!accumulation && steps) accumulation = static_cast<int>(*steps);
  if (!accumulation)
    assumptions.emplace_back("one micro-batch a step on every rank (nothing says more)");
  plan.workload.global_batch_size =
      sequences_of_step(plan.micro_batch_size, plan.parallel.dp, accumulation.value_or(1), file);
  apply_optimizer_arguments(arguments, plan.workload.optimizer);
}

}  // namespace meshplan::planner
