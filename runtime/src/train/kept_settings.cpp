#include "runtime/train/kept_settings.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string_view>

#include "core/error.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::runtime {
namespace {

using program::CompressionKind;
using program::Documents;
using program::LearningRateSchedule;
using program::OptimizerConfig;
using program::OptimizerKind;

/// Nothing where the setting does not apply, or is not known.
using Value = std::optional<std::string>;

constexpr const char* kNone = "none";

struct KeptSetting {
  const char* name;
  const char* option;  // of `meshplan run`; "" = a plan alone says it
  Value (*value)(const RunConfiguration&);
  const char* meaning = "";
  /// Why no run can go on with another value; null: --change asks for one.
  const char* fixed = nullptr;
};

const OptimizerConfig& optimizer(const RunConfiguration& run) {
  return run.plan.workload.optimizer;
}
const Documents& documents(const RunConfiguration& run) {
  return run.plan.workload.documents;
}

/// As short as it can be read back.
template <class T>
std::string text(T value) {
  return fmt::format("{}", value);
}

template <auto member>
Value of_optimizer(const RunConfiguration& run) {
  return text(optimizer(run).*member);
}
template <auto member>
Value of_adam(const RunConfiguration& run) {
  if (optimizer(run).kind == OptimizerKind::Sgd) return std::nullopt;
  return text(optimizer(run).*member);
}
Value momentum(const RunConfiguration& run) {
  if (optimizer(run).kind != OptimizerKind::Sgd) return std::nullopt;
  return text(optimizer(run).momentum);
}

bool decays(const RunConfiguration& run) {
  return optimizer(run).schedule == LearningRateSchedule::Cosine;
}
Value minimum_ratio(const RunConfiguration& run) {
  return decays(run) ? Value(text(optimizer(run).minimum_ratio)) : std::nullopt;
}
Value decay_steps(const RunConfiguration& run) {
  if (!decays(run)) return std::nullopt;
  if (optimizer(run).decay_steps > 0) return text(optimizer(run).decay_steps);
  return run.settings ? Value(text(run.settings->num_steps)) : std::nullopt;
}

template <auto member>
Value of_loss_scaling(const RunConfiguration& run) {
  if (run.plan.workload.precision != DType::F16 || !run.settings) return std::nullopt;
  return text(run.settings->loss_scaling.*member);
}

Value frozen(const RunConfiguration& run) {
  return run.plan.frozen.empty() ? kNone : fmt::format("{}", fmt::join(run.plan.frozen, ","));
}
Value compression(const RunConfiguration& run) {
  const program::GradientCompression& given = run.plan.compression;
  const std::string name(name_of(given.kind));
  return given.kind == CompressionKind::TopK ? fmt::format("{} {}", name, given.ratio) : name;
}
Value end_of_document(const RunConfiguration& run) {
  return documents(run).end_of_document ? text(*documents(run).end_of_document) : kNone;
}

constexpr const char* kOtherPlace = "the place in the data would be another";
constexpr const char* kOtherTokens = "its sequences would hold other tokens";

constexpr KeptSetting kSettings[] = {
    {"learning_rate", "--learning-rate", of_optimizer<&OptimizerConfig::learning_rate>},
    {"schedule", "--lr-schedule",
     [](const RunConfiguration& run) -> Value {
       return std::string(name_of(optimizer(run).schedule));
     }},
    {"warmup_steps", "--warmup-steps", of_optimizer<&OptimizerConfig::warmup_steps>},
    {"decay_steps", "--decay-steps", decay_steps,
     "the step at which the learning rate is at its least: --steps, unless --decay-steps says it"},
    {"minimum_ratio", "--min-lr-ratio", minimum_ratio},
    {"beta1", "--beta1", of_adam<&OptimizerConfig::beta1>},
    {"beta2", "--beta2", of_adam<&OptimizerConfig::beta2>},
    {"epsilon", "--epsilon", of_adam<&OptimizerConfig::epsilon>},
    {"momentum", "--momentum", momentum},
    {"weight_decay", "--weight-decay", of_optimizer<&OptimizerConfig::weight_decay>},
    {"clip_norm", "--clip-norm", of_optimizer<&OptimizerConfig::clip_norm>},
    {"precision", "",
     [](const RunConfiguration& run) -> Value {
       return std::string(program::precision_name(run.plan.workload));
     }},
    {"loss_scale_growth", "--loss-scale-growth", of_loss_scaling<&LossScaling::growth>},
    {"loss_scale_backoff", "--loss-scale-backoff", of_loss_scaling<&LossScaling::backoff>},
    {"loss_scale_interval", "--loss-scale-interval",
     of_loss_scaling<&LossScaling::growth_interval>},
    {"frozen", "--freeze", frozen},
    {"compression", "", compression},
    {"optimizer", "",
     [](const RunConfiguration& run) -> Value { return std::string(name_of(optimizer(run).kind)); },
     "", "their states do not convert"},
    {"seed", "--seed", [](const RunConfiguration& run) -> Value { return text(run.seed); }, "",
     kOtherPlace},
    {"seq_len", "",
     [](const RunConfiguration& run) -> Value { return text(run.plan.workload.seq_len); }, "",
     kOtherPlace},
    {"global_batch_size", "",
     [](const RunConfiguration& run) -> Value { return text(run.plan.workload.global_batch_size); },
     "", kOtherPlace},
    {"packed", "",
     [](const RunConfiguration& run) -> Value { return documents(run).packed ? "on" : "off"; }, "",
     kOtherTokens},
    {"end_of_document", "", end_of_document, "", kOtherTokens},
    {"pad_multiple", "",
     [](const RunConfiguration& run) -> Value { return text(documents(run).pad_multiple); }, "",
     kOtherTokens}};

struct Difference {
  const KeptSetting* setting;
  std::string before;
  std::string now;
};

std::vector<Difference> differences(const RunConfiguration& before, const RunConfiguration& now) {
  std::vector<Difference> found;
  for (const KeptSetting& setting : kSettings) {
    const Value then = setting.value(before), today = setting.value(now);
    if (then && today && then != today) found.push_back({&setting, *then, *today});
  }
  return found;
}

/// "decay_steps is 20 so far, but 40 now (...); momentum is ..."
std::string describe(const std::vector<Difference>& differences) {
  std::vector<std::string> parts;
  for (const auto& [setting, before, now] : differences) {
    const std::string_view said = setting->fixed != nullptr ? setting->fixed : setting->meaning;
    parts.push_back(fmt::format("{} is {} so far, but {} now{}", setting->name, before, now,
                                said.empty() ? "" : fmt::format(" ({})", said)));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

/// "--decay-steps 20 and a plan with precision bf16"
std::string as_before(const std::vector<Difference>& differences) {
  std::vector<std::string> options, of_plan;
  for (const auto& [setting, before, now] : differences)
    if (*setting->option == '\0' || before == kNone)
      of_plan.push_back(fmt::format("{} {}", setting->name, before));
    else
      options.push_back(fmt::format("{} {}", setting->option, before));
  std::string all = fmt::format("{}", fmt::join(options, " "));
  if (of_plan.empty()) return all;
  return fmt::format("{}{}a plan with {}", all, all.empty() ? "" : " and ",
                     fmt::join(of_plan, ", "));
}

void check_names(const std::vector<std::string>& asked) {
  const std::vector<std::string> known = changeable_settings();
  for (const std::string& name : asked)
    if (std::ranges::find(known, name) == known.end())
      throw ConfigError("--change: " + unknown_name_message("setting", name, known));
}

}  // namespace

std::vector<std::string> changeable_settings() {
  std::vector<std::string> names;
  for (const KeptSetting& setting : kSettings)
    if (setting.fixed == nullptr) names.emplace_back(setting.name);
  return names;
}

std::vector<std::string> options_of_kept_settings() {
  std::vector<std::string> options;
  for (const KeptSetting& setting : kSettings)
    if (*setting.option != '\0') options.emplace_back(setting.option);
  return options;
}

std::vector<SettingChange> changed_settings(const RunConfiguration& before,
                                            const RunConfiguration& now) {
  std::vector<SettingChange> changes;
  for (const auto& [setting, then, today] : differences(before, now))
    changes.push_back({.name = setting->name, .before = then, .now = today});
  return changes;
}

std::vector<SettingChange> assumed_settings(const RunConfiguration& before,
                                            const RunConfiguration& now) {
  std::vector<SettingChange> assumed;
  if (before.settings) return assumed;
  const RunConfiguration completed{before.plan, before.seed, now.settings};
  for (const KeptSetting& setting : kSettings)
    if (const Value value = setting.value(completed); value && !setting.value(before))
      assumed.push_back({.name = setting.name, .before = *value, .now = *value});
  return assumed;
}

void check_settings(const RunConfiguration& before, const RunConfiguration& now,
                    const std::string& folder, const std::vector<std::string>& asked) {
  check_names(asked);
  std::vector<Difference> unasked = differences(before, now);
  std::erase_if(unasked, [&](const Difference& difference) {
    return std::ranges::find(asked, difference.setting->name) != asked.end();
  });
  if (unasked.empty()) return;
  const auto is_fixed = [](const Difference& d) { return d.setting->fixed != nullptr; };
  if (std::ranges::any_of(unasked, is_fixed)) {
    std::erase_if(unasked, [&](const Difference& difference) { return !is_fixed(difference); });
    throw ConfigError(
        fmt::format("{}: {}: use {}, or start a new run from the weights with --init-from {}",
                    folder, describe(unasked), as_before(unasked), folder));
  }
  std::vector<std::string> names = asked;
  for (const Difference& difference : unasked) names.emplace_back(difference.setting->name);
  throw ConfigError(
      fmt::format("{}: {}: go on as before with {}, ask for the change with --change {}, or start "
                  "a new run from the weights with --init-from {}",
                  folder, describe(unasked), as_before(unasked), fmt::join(names, ","), folder));
}

}  // namespace meshplan::runtime
