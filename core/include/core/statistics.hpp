// Summaries of repeated measurements: one definition for all that is timed and compared.
#pragma once

#include <vector>

namespace meshplan {

/// The value below which `fraction` (0 to 1) of the values lie; linear between the two nearest.
/// Source: Hyndman & Fan 1996, definition 7 (the default of R and NumPy).
/// @throws InvariantError if there is no value, or the fraction is outside 0 to 1
double quantile(std::vector<double> values, double fraction);

double median(std::vector<double> values);
/// 0 if there is no value.
double mean(const std::vector<double>& values);

/// Median, 10th and 90th percentile.
struct Spread {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  bool operator==(const Spread&) const = default;
};
/// @throws InvariantError if there is no value
Spread spread_of(std::vector<double> values);

}  // namespace meshplan
