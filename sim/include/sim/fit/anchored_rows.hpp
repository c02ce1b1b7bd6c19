// Anchors judged on measured runs: rows of one model, machine, stack and precision predict each
// other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/fit/validation.hpp"

namespace meshplan::sim {

/// Errors of rows before and after, means over all choices of anchors that count.
struct AnchoredErrors {
  int rows = 0;
  int families = 0;
  double before = 0;  // mean absolute error, averaged within a family first
  double after = 0;
  double bias_before = 0;  // the same of signed errors
  double bias_after = 0;
  double covered_before = 0;  // part of the rows inside their 80 % intervals
  double covered_after = 0;
  double half_width_before = 0;  // median
  double half_width_after = 0;
};

/// The rows of a suite that have others to be anchored by.
struct AnchoredSuite {
  std::string suite;
  int groups = 0;  // of rows that anchor each other, whole or in part in this suite
  /// By how much one choice of anchors raises the mean error of its group's other rows of the
  /// suite, at most; negative: none does.
  double largest_rise = 0;
  AnchoredErrors all;
  AnchoredErrors equal_layers;  // where the layers of an anchor do the same on a device
  AnchoredErrors other_layers;  // where those of none do
};

/// Every choice of so many anchors in turn within each group of rows, applied to the group's other
/// rows. Suites in alphabetical order; those without such rows are left out.
/// @param predictions  without anchors, one a row
std::vector<AnchoredSuite> validate_anchors(const PreparedTable& table,
                                            const std::vector<RowPrediction>& predictions,
                                            int num_anchors, const ForEach& for_each);

}  // namespace meshplan::sim
