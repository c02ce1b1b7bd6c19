// A plan file with single values changed, as `--set parallel.tp=4` asks for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshplan::program {

struct ChangedPlan {
  std::string text;                  // of the plan file, without its prediction
  std::vector<std::string> changes;  // "parallel.tp: 8 -> 4"
};

/// @param settings  "path=value": the keys to a value of the file with dots between them; the value
/// as JSON, a string also without quotes and a list without brackets. Whether the changed plan
/// obeys the rules is for parse_plan to say.
/// @throws ConfigError for a file that is no plan, a path that it does not have, naming the nearest
/// one, and an object in place of a value
ChangedPlan change_plan(std::string_view text, const std::string& file,
                        const std::vector<std::string>& settings);

}  // namespace meshplan::program
