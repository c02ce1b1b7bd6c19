// What `meshplan trial` shows: several plans, predicted beside measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "program/calibration/machine_speed.hpp"
#include "program/plan/plan.hpp"

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
  /// The reference product's time over that at calibration, mean of the rounds; absent: not known.
  std::optional<double> slowdown = {};
  program::MachineSpeed machine = {};  // mean of the rounds; of all: whose cores were busiest
};

struct Trial {
  std::vector<TrialRow> rows;
  int rounds = 0;
};

/// |predicted / measured - 1|, mean over the rows.
double mean_absolute_error(const Trial& trial);
/// mean_absolute_error if the machine had kept the speed of its calibration: a row's measured time
/// is divided by its slowdown, where that is known. Absent if it is known of no row.
std::optional<double> mean_absolute_error_at_calibrated_speed(const Trial& trial);
/// Warning about the busiest cores of all rows; empty if the ranks had enough of them.
std::string busy_cores(const Trial& trial);
/// mean_absolute_error of the prediction "one rank's measured time divided by the number of ranks":
/// what scaling would be if nothing were lost. Models without a row of one rank are left out; rows
/// of one rank are exact by definition and not counted. Absent if nothing is left.
std::optional<double> naive_mean_absolute_error(const Trial& trial);

std::string to_text(const Trial& trial);
std::string to_json(const Trial& trial);
/// A line per plan, times in seconds, sizes in bytes.
std::string to_csv(const Trial& trial);
/// The table of to_text and what it finds, for a report.
std::string to_markdown(const Trial& trial);

}  // namespace meshplan::reports
