// What `meshplan trial` shows: several plans, predicted beside measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "program/plan.hpp"

namespace meshplan::reports {

struct TrialRow {
  std::string name;  // the plan's file, without folder and extension
  program::Plan plan;
  double predicted_s = 0;
  double predicted_memory_bytes = 0;
  double measured_s = 0;  // median of all steps of all rounds, without warm-up
  double p10_s = 0;
  double p90_s = 0;
  int steps = 0;
  double measured_memory_bytes = 0;  // largest of all rounds
  double first_loss = 0;
  double last_loss = 0;
};

struct Trial {
  std::vector<TrialRow> rows;
  int rounds = 0;
};

/// |predicted / measured - 1|, mean over the rows.
double mean_absolute_error(const Trial& trial);
/// The same for "one rank's measured time divided by the number of ranks": what scaling would be if
/// nothing were lost. Models without a row of one rank are left out; rows of one rank are exact by
/// definition and not counted. Absent if nothing is left.
std::optional<double> naive_mean_absolute_error(const Trial& trial);

std::string to_text(const Trial& trial);
std::string to_json(const Trial& trial);
/// A line per plan, times in seconds, sizes in bytes.
std::string to_csv(const Trial& trial);
/// The table of to_text and what it finds, for a report.
std::string to_markdown(const Trial& trial);

}  // namespace meshplan::reports
