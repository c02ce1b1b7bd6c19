// Steps that somebody measured at several sizes, beside the curve that was predicted.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/scaling/curve.hpp"

namespace meshplan::planner {

/// A row of the file: one run.
struct MeasuredSize {
  int devices = 0;
  std::optional<double> step_time_s;  // one of the two
  std::optional<double> tokens_per_s;
};

/// Reads a table (CSV) with the columns `devices` and one of `step_time_s` and `tokens_per_s`.
/// @throws ConfigError naming file, line, column, value, and what was expected
std::vector<MeasuredSize> parse_measured_runs(std::string_view text, const std::string& file);

/// The runs of one size beside its prediction.
struct MeasuredPoint {
  int devices = 0;
  int runs = 0;
  double step_time_s = 0;  // the median of the runs
  double low_s = 0, high_s = 0;
  /// Of the curve; none: no such plan, and then nothing but the times above is known.
  std::optional<std::size_t> point;
  double error = 0;     // predicted over measured, less 1
  bool inside = false;  // the predicted 80 % interval
  // Against the smallest size that was measured and has a plan.
  double speed_up = 0;
  double efficiency = 0;
  std::optional<double> serial;
};

struct MeasuredCurve {
  std::vector<MeasuredPoint> points;  // by devices
  std::optional<SerialFit> serial;    // `worst` is an index into `points`
  double mean_absolute_error = 0;     // of those with a prediction
  int inside = 0;                     // of these, how many lie in their interval
  int predicted = 0;
};

/// Sizes that were measured, ascending, each once.
std::vector<int> sizes_of(const std::vector<MeasuredSize>& runs);

/// @param curve  has all sizes of the runs
/// @throws ConfigError for tokens a second of a size that has no plan: its tokens are not known
MeasuredCurve beside(const ScalingCurve& curve, const std::vector<MeasuredSize>& runs,
                     const std::string& file);

}  // namespace meshplan::planner
