// Plans that are run in turns, so that a disturbance does not meet one alone: what `trial` and
// `lesson` do.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "options/host_options.hpp"
#include "output/terminal.hpp"
#include "process/temporary_folder.hpp"
#include "program/plan/plan.hpp"
#include "reports/trial_report.hpp"

namespace meshplan::cli {

struct TrialPlan {
  std::string name;
  std::string file;    // that holds the plan
  program::Plan plan;  // with a prediction
};

struct TrialPolicy {
  std::string data;      // text or token file
  int steps = 4;         // of a plan in a round; the first is warm-up
  int least_rounds = 3;  // in which all plans take turns
  int most_rounds = 8;
  double stable = 0.02;  // ends where no plan's median moved by more in a round
  HostOptions hosts;
};

/// @param folder  for the runs' traces
/// @returns a row for each plan, or the exit code of the job that failed
/// @throws ConfigError for data that a plan cannot train on
std::variant<reports::Trial, int> run_in_turns(const std::vector<TrialPlan>& plans,
                                               const TrialPolicy& policy, TemporaryFolder& folder,
                                               const Terminal& terminal);

}  // namespace meshplan::cli
