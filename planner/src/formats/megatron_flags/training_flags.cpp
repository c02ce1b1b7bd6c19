// Flags of the batch, the numbers and the optimizer.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "formats/megatron_flags/flag.hpp"
#include "program/plan/stack_names.hpp"

namespace meshplan::planner::megatron {
namespace {

using program::Float8Recipe;
using program::LearningRateSchedule;
using program::OptimizerConfig;
using program::OptimizerKind;
using program::Plan;

std::vector<Flag> batch_flags() {
  return {
      count(
          "--seq-length", Group::Training, [](auto& p) -> auto& { return p.workload.seq_len; }, 1,
          limits::kTokens),
      count(
          "--micro-batch-size", Group::Training,
          [](auto& p) -> auto& { return p.micro_batch_size; }, 1, limits::kTokens),
      value(
          "--global-batch-size", Group::Training,
          [](const Plan& p) { return std::optional(std::to_string(p.workload.global_batch_size)); },
          [](Reading& reading, const Argument* given) {
            // 0: micro-batches of all ranks, once dp is known. See complete_ranks().
            reading.plan.workload.global_batch_size =
                given != nullptr ? reading.integer(*given, 1, limits::kTokens) : 0;
            for (const char* ramp : {"--rampup-batch-size", "--step-batch-size-schedule"})
              if (const Argument* other = reading.find(ramp))
                reading.assume("the batch is the last one of " + other->written());
          }),
  };
}

void read_optimizer(Reading& reading, const Argument* given) {
  // The last two are forks' Adam beside a part of its state on the host.
  const std::vector<std::string> choices{"adam",      "sgd",        "muon",
                                         "dist_muon", "hybridadam", "cpu-adam"};
  constexpr std::size_t kSgd = 1, kMuon = 2, kDistributedMuon = 3;
  const std::size_t choice = given != nullptr ? reading.choice(*given, choices) : 0;
  program::Plan& plan = reading.plan;
  plan.workload.optimizer.kind = choice == kSgd ? OptimizerKind::Sgd
                                 : choice == kMuon || choice == kDistributedMuon
                                     ? OptimizerKind::Muon
                                     : OptimizerKind::AdamW;
  if (choice == kDistributedMuon) plan.zero_stage = std::max(plan.zero_stage, 1);
  if (choice <= kDistributedMuon) return;
  plan.offload_optimizer = true;
  reading.assume(fmt::format("all of the optimizer's state is on the host ({})", given->written()));
}

std::vector<Flag> rate_flags() {
  return {
      value(
          "--optimizer", Group::Training,
          [](const Plan& p) -> std::optional<std::string> {
            switch (p.workload.optimizer.kind) {
              case OptimizerKind::Sgd:
                return "sgd";
              case OptimizerKind::Muon:
                return "muon";
              case OptimizerKind::AdamW:
              case OptimizerKind::Adam:
                return "adam";
            }
            return std::nullopt;
          },
          read_optimizer, "weight decay is decoupled: AdamW"),
      value(
          "--lr", Group::Training,
          [](const Plan& p) { return std::optional(shortest(p.workload.optimizer.learning_rate)); },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr)
              reading.plan.workload.optimizer.learning_rate =
                  reading.number(*given, 0, limits::kRate);
          }),
      value(
          "--lr-decay-style", Group::Training,
          [](const Plan& p) -> std::optional<std::string> {
            return p.workload.optimizer.schedule == LearningRateSchedule::Cosine ? "cosine"
                                                                                 : "constant";
          },
          [](Reading& reading, const Argument* given) {
            const std::string style = given != nullptr ? reading.text(*given) : "linear";
            OptimizerConfig& optimizer = reading.plan.workload.optimizer;
            optimizer.schedule =
                style == "constant" ? LearningRateSchedule::Constant : LearningRateSchedule::Cosine;
            if (style != "constant" && style != "cosine")
              reading.assume(
                  fmt::format("the learning rate falls as a cosine (the script's: {})", style));
          }),
      value(
          "--min-lr", Group::Training,
          [](const Plan& p) -> std::optional<std::string> {
            const OptimizerConfig& optimizer = p.workload.optimizer;
            if (optimizer.schedule != LearningRateSchedule::Cosine) return std::nullopt;
            return fmt::format("{:.15g}", optimizer.learning_rate * optimizer.minimum_ratio);
          },
          [](Reading& reading, const Argument* given) {
            OptimizerConfig& optimizer = reading.plan.workload.optimizer;
            if (optimizer.schedule != LearningRateSchedule::Cosine) return;
            const double least = given != nullptr ? reading.number(*given, 0, limits::kRate) : 0;
            const double ratio = optimizer.learning_rate > 0 ? least / optimizer.learning_rate : 0;
            // Twelve digits: a ratio of a plan is found again.
            optimizer.minimum_ratio =
                std::min(1.0, *parse_number(fmt::format("{:.12g}", ratio), 0, 1e300));
          }),
  };
}

/// Steps of a setting that may be given in steps, samples or as a part of the decay.
std::optional<std::int64_t> steps_of(Reading& reading, const char* iters, const char* samples) {
  if (const Argument* given = reading.find(iters)) return reading.integer(*given, 0, 1LL << 40);
  const Argument* given = reading.find(samples);
  const std::int64_t batch = reading.plan.workload.global_batch_size;
  if (given == nullptr || batch == 0) return std::nullopt;
  return reading.integer(*given, 0, 1LL << 50) / batch;
}

int as_steps(std::int64_t steps) {
  return static_cast<int>(std::min<std::int64_t>(steps, 1 << 30));
}

std::vector<Flag> length_flags() {
  return {
      value(
          "--lr-decay-iters", Group::Training,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.workload.optimizer.decay_steps == 0) return std::nullopt;
            return std::to_string(p.workload.optimizer.decay_steps);
          },
          [](Reading& reading, const Argument*) {
            const auto decay = steps_of(reading, "--lr-decay-iters", "--lr-decay-samples");
            reading.plan.workload.optimizer.decay_steps = as_steps(decay.value_or(0));
          }),
      value(
          "--lr-warmup-iters", Group::Training,
          [](const Plan& p) {
            return std::optional(std::to_string(p.workload.optimizer.warmup_steps));
          },
          [](Reading& reading, const Argument*) {
            const auto warmup = steps_of(reading, "--lr-warmup-iters", "--lr-warmup-samples");
            OptimizerConfig& optimizer = reading.plan.workload.optimizer;
            optimizer.warmup_steps = as_steps(warmup.value_or(0));
            const Argument* part = reading.find("--lr-warmup-fraction");
            if (part == nullptr) return;
            const auto length = steps_of(reading, "--train-iters", "--train-samples");
            const std::int64_t decay =
                optimizer.decay_steps > 0 ? optimizer.decay_steps : length.value_or(0);
            optimizer.warmup_steps = as_steps(static_cast<std::int64_t>(
                reading.number(*part, 0, 1) * static_cast<double>(decay)));
          }),
  };
}

std::vector<Flag> moment_flags() {
  const auto is_adam = [](const Plan& p) {  // Muon has it, too: of all but matrices
    return p.workload.optimizer.kind != OptimizerKind::Sgd;
  };
  const auto of = [](std::string_view name, auto access, double high, double absent, auto when) {
    return value(
        name, Group::Training,
        [access, when](const Plan& p) -> std::optional<std::string> {
          if (!when(p)) return std::nullopt;
          return shortest(access(p.workload.optimizer));
        },
        [access, high, absent, when](Reading& reading, const Argument* given) {
          if (!when(reading.plan)) return;
          access(reading.plan.workload.optimizer) =
              given != nullptr ? reading.number(*given, 0, high) : absent;
        });
  };
  return {
      of(
          "--adam-beta1", [](auto& o) -> auto& { return o.beta1; }, 1, 0.9, is_adam),
      of(
          "--adam-beta2", [](auto& o) -> auto& { return o.beta2; }, 1, 0.999, is_adam),
      of(
          "--adam-eps", [](auto& o) -> auto& { return o.epsilon; }, 1, 1e-8, is_adam),
      of(
          "--sgd-momentum", [](auto& o) -> auto& { return o.momentum; }, 1, 0.9,
          [is_adam](const Plan& p) { return !is_adam(p); }),
      of(
          "--weight-decay", [](auto& o) -> auto& { return o.weight_decay; }, limits::kRate, 0.01,
          always),
      of(
          "--clip-grad", [](auto& o) -> auto& { return o.clip_norm; }, limits::kRate, 1, always),
  };
}

void read_fp8(Reading& reading, const Argument* given) {
  program::Workload& workload = reading.plan.workload;
  workload.fp8 = Float8Recipe::None;
  if (given == nullptr) return;
  const std::vector<std::string> choices{"hybrid", "e4m3"};
  const bool hybrid = reading.choice(*given, choices) == 0;
  workload.fp8 = Float8Recipe::Hybrid;
  const Argument* recipe = reading.find("--fp8-recipe");
  const std::string name = recipe != nullptr ? reading.text(*recipe) : "delayed";
  const auto scaling = from_name<program::Fp8Scaling>(name);
  reading.plan.stack.settings.fp8_scaling = scaling;
  if (!scaling)
    reading.assume(fmt::format("FP8 with one scale a tensor (the script's: recipe {})", name));
  if (!hybrid)
    reading.assume(fmt::format("gradients in E5M2, the rest in E4M3 (the script's: {})",
                               reading.text(*given)));
}

void read_fp4(Reading& reading, const Argument* given) {
  if (given == nullptr) return;
  const std::vector<std::string> choices{"e2m1"};
  (void)reading.choice(*given, choices);
  reading.plan.workload.fp8 = Float8Recipe::Hybrid;
  reading.plan.stack.settings.fp8_scaling = program::Fp8Scaling::NvFp4;
}

using LayerCount = std::optional<int> program::StackSettings::*;

bool is_low(const Plan& plan) {
  return plan.workload.fp8 != Float8Recipe::None;
}

bool keeps_layers(const Plan& plan) {
  const program::StackSettings& settings = plan.stack.settings;
  return is_low(plan) && (settings.bf16_layers_at_start.value_or(0) > 0 ||
                          settings.bf16_layers_at_end.value_or(0) > 0);
}

/// One of each end, unless the script counts them (core/transformer/transformer_config.py).
Flag kept_layers(std::string_view name, LayerCount count) {
  return value(
      name, Group::Precision,
      [count](const Plan& p) -> std::optional<std::string> {
        if (!keeps_layers(p)) return std::nullopt;
        return std::to_string((p.stack.settings.*count).value_or(0));
      },
      [count](Reading& reading, const Argument* given) {
        if (!is_low(reading.plan) || !reading.has("--first-last-layers-bf16")) return;
        reading.plan.stack.settings.*count =
            given == nullptr ? 1 : static_cast<int>(reading.integer(*given, 0, limits::kLayers));
      });
}

}  // namespace

std::vector<Flag> training_flags() {
  std::vector<Flag> all = batch_flags();
  for (const auto& part : {rate_flags(), length_flags(), moment_flags()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<Flag> precision_flags() {
  const auto of_16_bit = [](std::string_view name, DType type) {
    return toggle(
        name, Group::Precision, [type](const Plan& p) { return p.workload.precision == type; },
        [type](Reading& reading, bool given) {
          if (given) reading.plan.workload.precision = type;
        });
  };
  return {
      of_16_bit("--bf16", DType::BF16),
      of_16_bit("--fp16", DType::F16),
      value(
          "--fp8-format", Group::Precision,
          [](const Plan& p) -> std::optional<std::string> {
            if (!is_fp8(p)) return std::nullopt;
            return "hybrid";
          },
          read_fp8, "values and weights E4M3, gradients E5M2"),
      value(
          "--fp8-recipe", Group::Precision,
          [](const Plan& p) -> std::optional<std::string> {
            if (!is_fp8(p)) return std::nullopt;
            using program::Fp8Scaling;
            return std::string(
                meshplan::name_of(p.stack.settings.fp8_scaling.value_or(Fp8Scaling::Tensorwise)));
          },
          [](Reading&, const Argument*) {}),
      value(
          "--fp4-format", Group::Precision,
          [](const Plan& p) -> std::optional<std::string> {
            if (!is_fp4(p)) return std::nullopt;
            return "e2m1";
          },
          read_fp4, "products in four bits"),
      value(
          "--fp4-recipe", Group::Precision,
          [](const Plan& p) -> std::optional<std::string> {
            if (!is_fp4(p)) return std::nullopt;
            return "nvfp4";
          },
          [](Reading& reading, const Argument* given) {
            if (given == nullptr) return;
            const std::vector<std::string> choices{"nvfp4"};
            (void)reading.choice(*given, choices);
          }),
      toggle(
          "--first-last-layers-bf16", Group::Precision, keeps_layers, [](Reading&, bool) {},
          "the first and last layers' products stay in 16 bit"),
      kept_layers("--num-layers-at-start-in-bf16", &program::StackSettings::bf16_layers_at_start),
      kept_layers("--num-layers-at-end-in-bf16", &program::StackSettings::bf16_layers_at_end),
  };
}

}  // namespace meshplan::planner::megatron
