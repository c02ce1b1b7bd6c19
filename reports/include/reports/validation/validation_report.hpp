// Predictions beside published measurements.
#pragma once

#include <string>
#include <vector>

#include "sim/fit/validation.hpp"

namespace meshplan::reports {

struct ValidationReport {
  std::vector<sim::PublishedRow> rows;
  std::vector<sim::RowPrediction> predictions;
  std::vector<sim::SuiteSummary> suites;
  int num_constants = 0;
  std::string adjusted_by;  // measured runs, in words; empty: none
  int num_adjusted = 0;     // rows
};

/// A sentence for every suite whose mean absolute error exceeds that of `committed`, an earlier
/// report as JSON, by more than half a percentage point; empty if none does.
/// @throws ConfigError if `committed` is no such report
std::vector<std::string> worse_suites(const ValidationReport& report, std::string_view committed,
                                      const std::string& file);

/// The left-out predictions of all groups, one a row of the table.
ValidationReport left_out_report(const std::vector<sim::PublishedRow>& rows,
                                 const std::vector<sim::LeftOutGroup>& groups);
/// Errors of groups that were left out of the fit, beside those with them in it.
std::string leave_one_out_text(const std::vector<sim::PublishedRow>& rows, sim::LeaveOut by,
                               const std::vector<sim::LeftOutGroup>& groups);
/// Errors of the suites without one constant after another.
std::string ablation_text(const std::vector<sim::SuiteSummary>& all,
                          const std::vector<sim::Ablation>& ablations);

/// The terms of a row's predicted step, those that know least first.
std::string explain_text(const sim::PublishedRow& row, const sim::RowPrediction& own,
                         const std::vector<sim::PredictionTerm>& terms,
                         const sim::TimedShares& timed);

std::string to_text(const ValidationReport& report);
std::string to_json(const ValidationReport& report);
/// One line a row, in the table's order.
std::string to_csv(const ValidationReport& report);

/// Where each predicted step's time and memory go, one line a row.
std::string parts_csv(const ValidationReport& report);

}  // namespace meshplan::reports
