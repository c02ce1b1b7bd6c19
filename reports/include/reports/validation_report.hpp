// Predictions beside published measurements.
#pragma once

#include <string>
#include <vector>

#include "sim/validation.hpp"

namespace meshplan::reports {

struct LeftOut {
  std::string group;
  int rows = 0;
  double fitted = 0;    // mean absolute error with all rows in the fit
  double left_out = 0;  // with this group's rows left out of it
};

struct Ablation {
  std::string constant;
  std::vector<double> mean_absolute;  // per suite, with the constant held at its neutral value
};

struct ValidationReport {
  std::vector<sim::PublishedRow> rows;
  std::vector<sim::RowPrediction> predictions;
  std::vector<sim::SuiteSummary> suites;
  int num_constants = 0;
};

std::string to_text(const ValidationReport& report);
std::string to_json(const ValidationReport& report);
/// One line a row, in the table's order.
std::string to_csv(const ValidationReport& report);

/// Where each predicted step's time and memory go, one line a row.
std::string parts_csv(const ValidationReport& report);

}  // namespace meshplan::reports
