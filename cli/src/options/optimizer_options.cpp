#include "options/optimizer_options.hpp"

#include <fmt/format.h>
#include <string>
#include <tuple>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::cli {
namespace {

using program::LearningRateSchedule;
using program::OptimizerConfig;
using program::OptimizerKind;

/// Who reads a setting.
enum class ReadBy { All, Adam, Momentum, Cosine };

template <class T>
struct Setting {
  const char* flags = "";
  const char* key = "";  // in the plan, below workload.optimizer
  T OptimizerConfig::*member = nullptr;
  const char* help = "";
  double least = 0;
  double most = 0;
  ReadBy read_by = ReadBy::All;
};

constexpr std::array kNumbers = {
    Setting<double>{"--learning-rate,--lr", "learning_rate", &OptimizerConfig::learning_rate,
                    "at its peak", limits::kLeastRate, limits::kRate},
    Setting<double>{"--min-lr-ratio", "minimum_ratio", &OptimizerConfig::minimum_ratio,
                    "cosine: final / peak learning rate", 0, 1, ReadBy::Cosine},
    Setting<double>{"--beta1", "beta1", &OptimizerConfig::beta1, "Adam: decay of the first moment",
                    0, limits::kBelowOne, ReadBy::Adam},
    Setting<double>{"--beta2", "beta2", &OptimizerConfig::beta2, "Adam: decay of the second moment",
                    0, limits::kBelowOne, ReadBy::Adam},
    Setting<double>{"--epsilon", "epsilon", &OptimizerConfig::epsilon,
                    "Adam: added to the root of the second moment", limits::kLeastRate, 1,
                    ReadBy::Adam},
    Setting<double>{"--momentum", "momentum", &OptimizerConfig::momentum,
                    "of SGD, 0 = none, and Muon", 0, limits::kBelowOne, ReadBy::Momentum},
    Setting<double>{"--weight-decay", "weight_decay", &OptimizerConfig::weight_decay,
                    "of matrices; norms and biases are never decayed", 0, limits::kRate},
    Setting<double>{"--clip-norm", "clip_norm", &OptimizerConfig::clip_norm,
                    "largest norm of the whole gradient; 0 = no clipping", 0, limits::kRate}};

constexpr double kMostSteps = 2147483647;
constexpr std::array kSteps = {
    Setting<int>{"--warmup-steps", "warmup_steps", &OptimizerConfig::warmup_steps,
                 "steps in which the learning rate climbs to its peak", 0, kMostSteps},
    Setting<int>{"--decay-steps", "decay_steps", &OptimizerConfig::decay_steps,
                 "cosine: step at which the learning rate is at its least; 0 = the run's last", 0,
                 kMostSteps, ReadBy::Cosine}};

static_assert(std::tuple_size_v<decltype(OptimizerOptions::numbers)> == kNumbers.size());
static_assert(std::tuple_size_v<decltype(OptimizerOptions::steps)> == kSteps.size());

std::string plan_path_of(const char* key) {
  return fmt::format("workload.optimizer.{}", key);
}

std::string help_with_default(const char* help, const std::string& value,
                              OptimizerDefaults defaults) {
  return fmt::format("{}; default: {}", help,
                     defaults == OptimizerDefaults::OfPlan ? "the plan's" : value);
}

template <class T>
void add_setting(Command& command, const Setting<T>& setting, std::optional<T>& target,
                 OptimizerDefaults defaults) {
  const std::string value = fmt::format("{}", OptimizerConfig{}.*setting.member);
  command.option(setting.flags, target, help_with_default(setting.help, value, defaults))
      .between(setting.least, setting.most)
      .in_plan(plan_path_of(setting.key));
}

/// @throws ConfigError if this optimizer never reads it
template <class T>
void require_read(const Setting<T>& setting, T value, const OptimizerConfig& optimizer) {
  const bool sgd = optimizer.kind == OptimizerKind::Sgd;
  const bool momentum = sgd || optimizer.kind == OptimizerKind::Muon;
  const bool cosine = optimizer.schedule == LearningRateSchedule::Cosine;
  const std::string flags = setting.flags;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(
        fmt::format("{} {}: {}; leave it out", flags.substr(0, flags.find(',')), value, why));
  };
  if ((setting.read_by == ReadBy::Adam && sgd) ||
      (setting.read_by == ReadBy::Momentum && !momentum))
    refuse(fmt::format("the optimizer is {}, which has none", name_of(optimizer.kind)));
  if (setting.read_by == ReadBy::Cosine && !cosine)
    refuse("the learning rate is constant (--lr-schedule)");
}

/// @returns whether anything was given
template <class T, std::size_t N>
bool apply_settings(const std::array<Setting<T>, N>& settings,
                    const std::array<std::optional<T>, N>& values, OptimizerConfig& optimizer) {
  bool any = false;
  for (std::size_t i = 0; i < N; ++i) {
    if (!values[i]) continue;
    require_read(settings[i], *values[i], optimizer);
    optimizer.*settings[i].member = *values[i];
    any = true;
  }
  return any;
}

}  // namespace

void add_optimizer_options(Command& command, OptimizerOptions& options,
                           OptimizerDefaults defaults) {
  command.group(kOptimizerGroup);
  for (std::size_t i = 0; i < kNumbers.size(); ++i)
    add_setting(command, kNumbers[i], options.numbers[i], defaults);
  const std::string schedule(name_of(OptimizerConfig{}.schedule));
  command
      .choice("--lr-schedule", options.schedule,
              help_with_default("the learning rate after its warm-up", schedule, defaults))
      .in_plan(plan_path_of("schedule"));
  for (std::size_t i = 0; i < kSteps.size(); ++i)
    add_setting(command, kSteps[i], options.steps[i], defaults);
}

bool apply(const OptimizerOptions& options, OptimizerConfig& optimizer) {
  if (options.schedule) optimizer.schedule = *options.schedule;
  const bool numbers = apply_settings(kNumbers, options.numbers, optimizer);
  const bool steps = apply_settings(kSteps, options.steps, optimizer);
  return options.schedule || numbers || steps;
}

}  // namespace meshplan::cli
