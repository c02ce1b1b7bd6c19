// What is said of failures: how often devices fail, and what a job does then.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "options/command_line.hpp"
#include "planner/failures/failure_model.hpp"
#include "planner/failures/failure_play.hpp"

namespace meshplan::cli {

constexpr const char* kMtbfHelp =
    "mean time between failures of one device, with its unit: 50000h, 2000d, 5.7y";

/// Hours of the option --mtbf. @throws ConfigError for a time without a unit, naming the option
double mtbf_hours(const std::string& option);

/// Options that were declared, to tell which of them the command line gave.
struct GivenFlags {
  std::vector<std::pair<std::string, std::function<bool()>>> declared;
  /// The first that was given, apart from these; empty: none.
  std::string first(const std::vector<std::string>& but = {}) const;
};

struct FailureOptions {
  std::optional<std::string> mtbf;
  std::optional<planner::CheckpointPlace> checkpoints;
  std::optional<planner::SmallerWorld> smaller_world;
  std::optional<double> checkpoint_s, interval_s, detection_s, start_s, storage_gb_per_s,
      repair_hours;
  std::optional<int> spare_nodes;
  GivenFlags flags;
};

/// --mtbf and what a job does when a device fails.
/// @param mtbf_help  of --mtbf, with what holds without it
void add_failure_options(Command& command, FailureOptions& options, const std::string& mtbf_help);

/// Absent without --mtbf. @throws ConfigError where another of the options is given without it
std::optional<planner::FailureAssumptions> failures_of(const FailureOptions& options);

/// With the default MTBF where none is given. @throws ConfigError for an MTBF without a unit
planner::FailureAssumptions failure_assumptions(const FailureOptions& options);

struct FailurePlayOptions {
  bool failures = false;
  std::optional<double> days;
  std::optional<int> trials;
  std::optional<std::int64_t> seed;
  GivenFlags flags;
};
/// --failures --days --trials --seed
void add_failure_play_options(Command& command, FailurePlayOptions& options);
/// @throws ConfigError for what cannot be played
planner::PlayOptions play_options(const FailurePlayOptions& options);

/// @param but  flags that something else reads
/// @throws ConfigError for an option of failures where --failures is not given
void refuse_without_failures(const FailurePlayOptions& play, const FailureOptions& options,
                             const std::vector<std::string>& but = {});

}  // namespace meshplan::cli
