// Formulas of single operators laid against measured ones, and the constants fitted on them.
//
// Errors are of predicted / measured; "median" is of their sizes. A shape left out is predicted
// from its neighbours; a device left out from constants fitted on the other devices and its data
// sheet.
#pragma once

#include <string>
#include <vector>

#include "sim/prices/measured_works.hpp"
#include "sim/fit/validation.hpp"

namespace meshplan::sim {

/// One file of measured operators.
struct WorkTable {
  std::string file;  // "gemm.csv"
  std::vector<MeasuredWork> rows;
};

/// Errors of the judged rows of one file and device, of one dtype or (group empty) of all.
struct OperatorErrors {
  std::string file, device, group;
  int rows = 0;
  double formula = 0;       // median
  double bias = 0;          // median of predicted / measured - 1
  double interpolated = 0;  // median, each shape predicted from the others
  double left_out = 0;      // median, with constants that were fitted without the device
  double shipped = 0;       // median, corrected by other shapes of the presets' tables
};

struct OperatorReport {
  std::vector<OperatorErrors> errors;  // by file, device and group; a device's sum is last
  std::vector<std::string> unpriced;   // a sentence for each device without a data sheet
};

/// The most that a device's median may be, of a file's formulas and of its interpolation.
struct OperatorTargets {
  double formula = 0;
  double interpolated = 0;
  double left_out = 0;
};
OperatorTargets targets_of(const std::string& file);

OperatorReport validate_operators(const std::vector<WorkTable>& tables,
                                  const std::vector<ConstantRecord>& records,
                                  const ForEach& for_each);

/// Coordinate search for the least mean size of log errors, each at most kWorst (an L1 fit, robust
/// to what the formulas do not describe); a file's device and dtype count once. Starts at the
/// expected values, so that nothing of an earlier fit remains; what no row determines stays there.
std::vector<ConstantRecord> fit_operators(const std::vector<WorkTable>& tables,
                                          const std::vector<ConstantRecord>& records,
                                          const ForEach& for_each);

/// What the other architectures say of one without a table: of the one that has the same kind of
/// matrix instruction, products at the same energy a FLOP, all else at the same part of its peak.
OperatorConstants without_architecture(OperatorConstants constants, Architecture architecture);

}  // namespace meshplan::sim
