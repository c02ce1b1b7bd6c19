// What `meshplan simulate` and the Python package ask about one plan, and the report of it.
#pragma once

#include <optional>
#include <string>

#include "options/plan_input.hpp"
#include "options/whole_run/failure_options.hpp"
#include "options/whole_run/saving_options.hpp"
#include "output/terminal.hpp"
#include "planner/failures/failure_study.hpp"
#include "reports/estimate_report.hpp"
#include "reports/simulation_report.hpp"
#include "reports/software_report.hpp"
#include "requests/question.hpp"

namespace meshplan::cli {

constexpr const char* kSimulateSummary = "Predict step time, its breakdown and memory of one plan";

struct SimulateRequest {
  std::optional<std::string> file;  // or its JSON
  PlanOptions plan;
  std::optional<double> memory_reserve;
  bool all_ranks = false;
  bool memory_timeline = false;
  bool communication = false;
  bool estimate = false;
  std::optional<std::string> adjusted;  // or its JSON
  SavingOptions saving;
  FailureOptions failures;
  FailurePlayOptions play;
};
/// The options that say what to simulate, and how: a plan's file or --model ... --tp ... --set
void add_simulate_request(Command& command, SimulateRequest& request);

/// The plan of the file, with the changes asked for, or the one that the flags describe.
/// @throws ConfigError for a plan that breaks a rule, or that the software cannot be asked for
PlanOnCluster load(const SimulateRequest& request);

/// @param record_spans  keep every operation of the last step
/// @param memory_timelines  also if the request does not ask for them
reports::SimulationReport simulate(const SimulateRequest& request, const PlanOnCluster& loaded,
                                   bool record_spans, bool memory_timelines,
                                   const Terminal& terminal);

/// The plan as a file holds it: with its cluster, that cluster's hash, and this prediction.
program::Plan with_prediction(const PlanOnCluster& loaded, program::Prediction prediction);
/// The same, with what a simulation of it says.
program::Plan simulated_plan(const reports::SimulationReport& report, const PlanOnCluster& loaded);

/// @throws ConfigError for what needs single operations, which are known of our own software only
reports::SoftwareReport simulate_other_software(const SimulateRequest& request,
                                                const PlanOnCluster& loaded);

/// @param loaded  of our own software. @throws ConfigError for what needs the step played
reports::EstimateReport estimate(const SimulateRequest& request, const PlanOnCluster& loaded);

/// Months of failures of the plan, at the step time that the other options predict.
/// @throws ConfigError for what shows single steps
planner::FailureStudy failure_study(const SimulateRequest& request, const PlanOnCluster& loaded,
                                    const Terminal& terminal);

/// What --json prints of such a report.
std::string report_json(const SimulateRequest& request, const reports::SimulationReport& report);

/// What --json prints, of the software that was asked for.
std::string simulation_json(const SimulateRequest& request, const PlanOnCluster& loaded,
                            const Terminal& terminal);

/// @throws ConfigError for an option that decides what the plan's file decides
void refuse_beside_file(const Command& command, const SimulateRequest& request);

/// That an option which shows single operations is refused. @param flag  that was given
[[noreturn]] void refuse_operations(const std::string& flag);
/// The same beside --estimate.
[[noreturn]] void refuse_beside_estimate(const std::string& flag);

/// The same beside --failures.
[[noreturn]] void refuse_beside_failures(const std::string& flag);

/// Answers simulation_json.
Question simulate_question();

}  // namespace meshplan::cli
