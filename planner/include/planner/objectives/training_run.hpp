// From the time of a step to a whole training run: hours, devices' hours, money and energy, with
// failures where the plan has a goodput (planner/failures).
#pragma once

#include <optional>
#include <string>

#include "planner/search/search.hpp"

namespace meshplan::planner {

struct TrainingRunQuestion {
  double tokens = 0;                            // to train on
  std::optional<double> price_per_device_hour;  // any currency
  std::string price_of;  // "USD, us-east-1, 2026-10-06": of a list price that nobody asked for
  std::optional<double> watts_per_device;  // of a busy device with its share of the node
};

struct TrainingRunAnswer {
  double steps = 0;
  double training_s = 0;             // without failures and checkpoints
  double elapsed_s = 0;              // expected
  double goodput = 1;                // training_s / elapsed_s
  double failures = 0;               // expected
  double checkpoint_interval_s = 0;  // 0 where nothing fails
  double device_hours = 0;
  std::optional<double> money;
  std::optional<double> price_per_device_hour;  // as asked
  std::string price_of;
  std::optional<double> energy_kwh;
};

/// @param step_time_s, tokens_per_step, devices  of the plan, > 0
/// @param goodput  of the plan; null: nothing fails. The expected time is that without failures
/// over it.
/// @throws ConfigError for numbers that are not positive and finite, and where failures leave no
/// time to get on
TrainingRunAnswer training_run(const TrainingRunQuestion& question, double step_time_s,
                               double tokens_per_step, int devices,
                               const Goodput* goodput = nullptr);
/// The same of a plan that was ranked.
TrainingRunAnswer training_run(const TrainingRunQuestion& question, const RankedPlan& ranked);

}  // namespace meshplan::planner
