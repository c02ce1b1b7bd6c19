// What a whole training run is: tokens and prices.
#pragma once

#include <optional>

#include "options/command_line.hpp"
#include "planner/objectives/training_run.hpp"
#include "planner/search/search.hpp"

namespace meshplan::cli {

struct TrainingRunOptions {
  std::optional<double> tokens;
  planner::TrainingRunQuestion question;
};

/// --tokens --price-per-gpu-hour --gpu-watts
void add_training_run_options(Command& command, TrainingRunOptions& options);

/// Absent without --tokens; watts are the device's power limit and the price is the cluster's list
/// price where none are given.
/// @throws ConfigError where another of the options is given without it
std::optional<planner::TrainingRunQuestion> training_run_question(const TrainingRunOptions& options,
                                                                  const sim::Cluster& cluster);

}  // namespace meshplan::cli
