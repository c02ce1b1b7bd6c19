#include "planner/scaling/laws.hpp"

#include <algorithm>
#include <cmath>

namespace meshplan::planner {

double speed_up_of(ScalingMode mode, double serial, double scale) {
  if (mode == ScalingMode::Strong) return 1 / (serial + (1 - serial) / scale);
  return scale - serial * (scale - 1);
}

std::optional<double> serial_part(ScalingMode mode, const SpeedUp& seen) {
  const auto [scale, value] = seen;
  if (scale == 1) return std::nullopt;
  if (mode == ScalingMode::Strong) return (1 / value - 1 / scale) / (1 - 1 / scale);
  return (scale - value) / (scale - 1);
}

std::optional<SerialFit> fit_serial(ScalingMode mode, const std::vector<SpeedUp>& seen) {
  // Both laws are linear in s: y = s x, of x = 1 - 1 / p.
  double xy = 0, xx = 0;
  for (const auto& [scale, value] : seen) {
    const double x = 1 - 1 / scale;
    const double y = mode == ScalingMode::Strong ? 1 / value - 1 / scale : 1 - value / scale;
    xy += x * y;
    xx += x * x;
  }
  if (xx == 0) return std::nullopt;
  SerialFit fit{.serial = xy / xx};
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const double error = speed_up_of(mode, fit.serial, seen[i].scale) / seen[i].value - 1;
    if (std::abs(error) <= std::abs(fit.worst_error)) continue;
    fit.worst = i;
    fit.worst_error = error;
  }
  return fit;
}

std::optional<Trend> trend_of(const std::vector<double>& serial_parts) {
  constexpr double kPart = 0.25, kLeast = 1e-3;
  if (serial_parts.size() < 2) return std::nullopt;
  const double first = serial_parts.front(), last = serial_parts.back();
  const double apart = std::max(kPart * std::max(std::abs(first), std::abs(last)), kLeast);
  if (std::abs(last - first) <= apart) return Trend::Constant;
  return last > first ? Trend::Rising : Trend::Falling;
}

}  // namespace meshplan::planner
