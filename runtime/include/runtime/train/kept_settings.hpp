// What decides the arithmetic of a run, and may not change unsaid when it is resumed
// (docs/checkpoints.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/plan/plan.hpp"
#include "runtime/weights/checkpoint.hpp"

namespace meshplan::runtime {

/// A run as far as its arithmetic depends on it, but for its data.
struct RunConfiguration {
  const program::Plan& plan;
  std::uint64_t seed = 0;
  std::optional<RunSettings> settings;  // nothing: not known (checkpoints before 2026-11-29)
};

/// A setting in which two runs differ.
struct SettingChange {
  std::string name;    // as --change takes it
  std::string before;  // as the option takes it, if there is one
  std::string now;
};

/// Names that --change takes.
std::vector<std::string> changeable_settings();
/// Options of `meshplan run` that set what a checkpoint keeps.
std::vector<std::string> options_of_kept_settings();

/// Settings that apply to both runs and differ.
std::vector<SettingChange> changed_settings(const RunConfiguration& before,
                                            const RunConfiguration& now);

/// Settings that `before` does not say, with the value that they are taken to have had: that of
/// now.
std::vector<SettingChange> assumed_settings(const RunConfiguration& before,
                                            const RunConfiguration& now);

/// @param folder  the checkpoint that `before` is of
/// @param asked  names of settings that may differ; those that do not are no error
/// @throws ConfigError naming every setting that differs otherwise, both values, and what to type
/// to go on as before or to change it; for an unknown name in `asked`, the nearest one
void check_settings(const RunConfiguration& before, const RunConfiguration& now,
                    const std::string& folder, const std::vector<std::string>& asked);

}  // namespace meshplan::runtime
