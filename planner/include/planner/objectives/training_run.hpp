// From the time of a step to a whole training run: hours, devices' hours, money and energy, with
// failures.
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
  std::optional<double>
      device_mtbf_hours;     // mean time between failures of one device; absent: none fails
  double checkpoint_s = 60;  // that a checkpoint stops training
  double restart_s = 600;    // from a failure to the first step after the checkpoint
  std::optional<double> checkpoint_interval_s;  // between checkpoints; absent: the best one
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

/// The expected time of work T with checkpoints of d seconds every t seconds of work, restarts of R
/// seconds, and failures that come at random once in M seconds, is M * exp(R / M) * (exp((t + d) /
/// M) - 1) * T / t (Daly 2006, "A higher order estimate of the optimum checkpoint interval for
/// restart dumps", equation 20); the best t is his equation 37.
/// @param step_time_s, tokens_per_step, devices  of the plan, > 0
/// @throws ConfigError for numbers that are not positive and finite, and where failures leave no
/// time to get on
TrainingRunAnswer training_run(const TrainingRunQuestion& question, double step_time_s,
                               double tokens_per_step, int devices);
/// The same of a plan that was ranked.
TrainingRunAnswer training_run(const TrainingRunQuestion& question, const RankedPlan& ranked);

}  // namespace meshplan::planner
