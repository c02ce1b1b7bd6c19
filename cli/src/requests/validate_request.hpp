// Predictions beside published measurements: what `meshplan validate` and the Python package share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options/command_line.hpp"
#include "planner/search/search.hpp"
#include "reports/validation/validation_report.hpp"
#include "requests/question.hpp"
#include "sim/fit/validation.hpp"

namespace meshplan::cli {

constexpr const char* kValidateSummary = "Lay predictions beside published measurements";

struct ValidateRequest {
  std::optional<std::string> table;
  std::optional<std::string> releases;
  std::optional<std::string> constants;
  std::optional<std::string> adjusted;  // or its JSON
  int threads = 0;
  bool users_own = false;  // rows that name no release ran with the newest
};
/// --table --releases --constants --adjusted --threads
void add_validate_request(Command& command, ValidateRequest& request);

/// @param parallel_for  on_threads(request.threads), or what a caller makes of it
sim::ForEach for_each_on(const planner::ParallelFor& parallel_for);

/// @throws ConfigError for a missing or wrong table
sim::PreparedTable load_table(const ValidateRequest& request, const sim::ForEach& each);
/// Those of the file that was asked for, or the built-in ones.
std::vector<sim::ConstantRecord> load_constants(const ValidateRequest& request);

/// @param adjustment  of the rows of its cluster, software, model and precision; null: none
reports::ValidationReport report_of(const sim::PreparedTable& table,
                                    const std::vector<sim::ConstantRecord>& constants,
                                    const sim::ForEach& each,
                                    const sim::Adjustment* adjustment = nullptr);

/// Answers reports::to_json of the report.
Question validate_question(const Threads& threads);

}  // namespace meshplan::cli
