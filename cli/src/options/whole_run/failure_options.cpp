#include "options/whole_run/failure_options.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/enum_names.hpp"
#include "core/error.hpp"
#include "planner/failures/failure_names.hpp"

namespace meshplan::cli {

namespace {

/// Declares an option and remembers it for GivenFlags.
template <class T>
void declare(Command& command, GivenFlags& flags, const char* flag, std::optional<T>& target,
             const std::string& help) {
  if constexpr (NamedEnum<T>)
    command.choice(flag, target, help);
  else
    command.option(flag, target, help);
  flags.declared.emplace_back(flag, [&target] { return target.has_value(); });
}

}  // namespace

std::string GivenFlags::first(const std::vector<std::string>& but) const {
  for (const auto& [flag, is_given] : declared)
    if (is_given() && std::ranges::find(but, flag) == but.end()) return flag;
  return "";
}

void add_failure_options(Command& command, FailureOptions& options, const std::string& mtbf_help) {
  command.group("Failures");
  const auto add = [&](const char* flag, auto& target, const std::string& help) {
    declare(command, options.flags, flag, target, help);
  };
  add("--mtbf", options.mtbf, mtbf_help);
  add("--checkpoints", options.checkpoints,
      "where a checkpoint must be before a job restarts from it: a file system, or the host memory "
      "of a partner's node; default: storage");
  add("--smaller-world", options.smaller_world,
      "while a node is away and no spare stands by, fewer replicas share the batch or shrink it, "
      "or the job waits; default: keep-batch");
  add("--checkpoint-interval", options.interval_s,
      "seconds of training between checkpoints; default: the best (Daly 2006)");
  add("--checkpoint-seconds", options.checkpoint_s,
      "that a checkpoint stops training; default: the copy to host memory");
  add("--storage-bandwidth", options.storage_gb_per_s,
      "GB/s of the file system, all nodes together; default: the cluster's, else 1 a node");
  add("--detection-seconds", options.detection_s,
      "from a failure until the job is stopped; default: 600");
  add("--restart-seconds", options.start_s,
      "from there until all processes have started, without loading; default: 300");
  add("--repair-hours", options.repair_hours, "until a node that failed is back; default: 24");
  add("--spare-nodes", options.spare_nodes,
      "nodes that stand by and replace one at once; default: 0");
}

double mtbf_hours(const std::string& option) {
  try {
    return planner::parse_mtbf_hours(option);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--mtbf {}", error.what()));
  }
}

planner::FailureAssumptions failure_assumptions(const FailureOptions& options) {
  planner::FailureAssumptions assumptions;
  if (options.mtbf) assumptions.device_mtbf_hours = mtbf_hours(*options.mtbf);
  const auto take = [](auto& to, const auto& from) {
    if (from) to = *from;
  };
  take(assumptions.checkpoints, options.checkpoints);
  take(assumptions.smaller_world, options.smaller_world);
  take(assumptions.interval_s, options.interval_s);
  take(assumptions.checkpoint_s, options.checkpoint_s);
  take(assumptions.storage_gb_per_s, options.storage_gb_per_s);
  take(assumptions.detection_s, options.detection_s);
  take(assumptions.start_s, options.start_s);
  take(assumptions.repair_hours, options.repair_hours);
  take(assumptions.spare_nodes, options.spare_nodes);
  return assumptions;
}

std::optional<planner::FailureAssumptions> failures_of(const FailureOptions& options) {
  if (options.mtbf) return failure_assumptions(options);
  const std::string given = options.flags.first();
  if (given.empty()) return std::nullopt;
  throw ConfigError(
      fmt::format("{}: nothing fails without --mtbf; add it, for example --mtbf 50000h", given));
}

void add_failure_play_options(Command& command, FailurePlayOptions& options) {
  command.group("Failures")
      .flag("--failures", options.failures,
            "play months in which devices fail: goodput, spare nodes, checkpoints");
  declare(command, options.flags, "--days", options.days, "that a trial lasts; default: 30");
  declare(command, options.flags, "--trials", options.trials, "that are played; default: 200");
  declare(command, options.flags, "--seed", options.seed, "of the trials; default: 1");
}

planner::PlayOptions play_options(const FailurePlayOptions& options) {
  planner::PlayOptions play;
  play.days = options.days.value_or(play.days);
  play.trials = options.trials.value_or(play.trials);
  if (options.seed && *options.seed < 0)
    throw ConfigError(
        fmt::format("--seed {}: expected a whole number of at least 0", *options.seed));
  play.seed = static_cast<std::uint64_t>(options.seed.value_or(1));
  return play;
}

void refuse_without_failures(const FailurePlayOptions& play, const FailureOptions& options,
                             const std::vector<std::string>& but) {
  if (play.failures) return;
  std::string given = play.flags.first();
  if (given.empty()) given = options.flags.first(but);
  if (!given.empty())
    throw ConfigError(fmt::format("{}: belongs to --failures; add that, or leave this out", given));
}

}  // namespace meshplan::cli
