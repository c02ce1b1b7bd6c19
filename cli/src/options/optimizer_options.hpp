// The flags of the optimizer and its learning rate: a plan is made with them, or run with others
// than its file has.
#pragma once

#include <array>
#include <optional>

#include "options/command_line.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::cli {

/// What was given of OptimizerConfig, in the order of its declarations (optimizer_options.cpp).
struct OptimizerOptions {
  std::array<std::optional<double>, 8> numbers;
  std::array<std::optional<int>, 2> steps;
  std::optional<program::LearningRateSchedule> schedule;
};

enum class OptimizerDefaults { Meshplan, OfPlan };

/// --learning-rate --lr-schedule --warmup-steps --decay-steps ... under a title of their own.
/// @param defaults  what help says of a setting that is not given
void add_optimizer_options(Command& command, OptimizerOptions& options, OptimizerDefaults defaults);
constexpr const char* kOptimizerGroup =
    "Optimizer and learning rate (docs/training_data.md#optimizer)";

/// Takes over what was given. @returns whether anything was
/// @throws ConfigError for a setting that the kind of optimizer or the schedule does not read
bool apply(const OptimizerOptions& options, program::OptimizerConfig& optimizer);

}  // namespace meshplan::cli
