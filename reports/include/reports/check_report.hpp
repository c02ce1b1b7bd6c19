// What `meshplan check` and `meshplan rules` show: judgements, memory by stage, changes that help.
#pragma once

#include <string>
#include <vector>

#include "planner/check/check.hpp"

namespace meshplan::reports {

struct CheckReport {
  planner::CheckRequest request;
  planner::CheckResult result;
  std::vector<std::string> changes;      // of the file, by --set
  std::vector<std::string> assumptions;  // of its reader
  std::vector<std::string> ignored;      // settings there that change nothing here
};

/// @param all  also the rules that the plan keeps
std::string to_text(const CheckReport& report, bool all);
std::string to_json(const CheckReport& report);

/// A set of rules with their sources.
std::string rules_text(const planner::RuleSet& rules);
/// The targets that have rules.
std::string targets_text(const std::vector<std::string>& targets);
std::string rules_json(const std::vector<std::string>& targets);

}  // namespace meshplan::reports
