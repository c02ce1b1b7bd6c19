// Single values of a plan file by their paths: changed, as `--set parallel.tp=4` asks for, or told
// apart from another plan's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::program {

struct ChangedPlan {
  std::string text;                  // of the plan file, without its prediction
  std::vector<std::string> changes;  // "parallel.tp: 8 -> 4"
};

/// @param settings  "path=value": the keys to a value of the file with dots between them; the value
/// as JSON, a string also without quotes and a list without brackets. Whether the changed plan
/// obeys the rules is for parse_plan to say.
/// @param other_names  what else may be set, though not here: among the nearest that are named
/// @throws ConfigError for a file that is no plan, a path that it does not have, naming the nearest
/// one, and an object in place of a value
ChangedPlan change_plan(std::string_view text, const std::string& file,
                        const std::vector<std::string>& settings,
                        const std::vector<std::string>& other_names = {});

/// A value that two plan files say differently; "-" where one has none.
struct SettingDifference {
  std::string path;
  std::string a;
  std::string b;
  bool operator==(const SettingDifference&) const = default;
};

/// In the order of the file. Hashes and predictions are left out.
std::vector<SettingDifference> differing_settings(const Plan& a, const Plan& b);

}  // namespace meshplan::program
