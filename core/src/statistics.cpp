#include "core/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/error.hpp"

namespace meshplan {
namespace {

double quantile_of_sorted(const std::vector<double>& values, double fraction) {
  require_invariant(!values.empty(), "no values to summarize");
  require_invariant(fraction >= 0 && fraction <= 1, "a fraction outside 0 to 1");
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(std::floor(place));
  const auto high = std::min(low + 1, values.size() - 1);
  return std::lerp(values[low], values[high], place - static_cast<double>(low));
}

}  // namespace

double quantile(std::vector<double> values, double fraction) {
  std::ranges::sort(values);
  return quantile_of_sorted(values, fraction);
}

double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

double mean(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {quantile_of_sorted(values, 0.5), quantile_of_sorted(values, 0.1),
          quantile_of_sorted(values, 0.9)};
}

}  // namespace meshplan
