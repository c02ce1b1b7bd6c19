// Laws of speed-up: what a serial part does to it, and what part would explain one that was seen.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/enum_names.hpp"

namespace meshplan::planner {

/// What stays the same when devices are added.
enum class ScalingMode {
  Strong,  // the work
  Weak,    // the work of each device
};

/// A speed-up that was simulated or measured.
struct SpeedUp {
  double scale = 1;  // times as many devices as where the speed-up is 1
  double value = 1;  // times as much work a second
};

/// Strong: 1 / (s + (1 - s) / p) (Amdahl 1967). Weak: p - s (p - 1), s of the time on p devices
/// (Gustafson 1988, "scaled speedup").
/// @param serial  part of the work, 0 to 1
double speed_up_of(ScalingMode mode, double serial, double scale);

/// The serial part that explains one speed-up: strong (1 / S - 1 / p) / (1 - 1 / p) (Karp and Flatt
/// 1990, equation 2); weak (p - S) / (p - 1), Gustafson's law solved for it.
/// @returns nothing at scale 1. Negative where the speed-up exceeds the scale
std::optional<double> serial_part(ScalingMode mode, const SpeedUp& seen);

/// The serial part with which the law comes nearest to all speed-ups: least squares in 1 / S of the
/// strong law, in S / p of the weak one.
struct SerialFit {
  double serial = 0;
  std::size_t worst = 0;   // the point that the law misses by most
  double worst_error = 0;  // of it: the law's speed-up over what was seen, less 1
};
/// @returns nothing without a point beyond scale 1
std::optional<SerialFit> fit_serial(ScalingMode mode, const std::vector<SpeedUp>& seen);

/// How the serial parts of single points go on: rising ones mean overhead that grows with the
/// devices, constant ones a part that does not shrink (Karp and Flatt 1990, section 3).
enum class Trend { Rising, Constant, Falling };
/// Of the last against the first: constant within a quarter of the larger one, or a tenth of a
/// percent. @returns nothing of fewer than two
std::optional<Trend> trend_of(const std::vector<double>& serial_parts);

}  // namespace meshplan::planner

template <>
struct meshplan::EnumNames<meshplan::planner::ScalingMode> {
  static constexpr std::array<std::pair<planner::ScalingMode, std::string_view>, 2> value{
      {{planner::ScalingMode::Strong, "strong"}, {planner::ScalingMode::Weak, "weak"}}};
};
template <>
struct meshplan::EnumNames<meshplan::planner::Trend> {
  static constexpr std::array<std::pair<planner::Trend, std::string_view>, 3> value{
      {{planner::Trend::Rising, "rising"},
       {planner::Trend::Constant, "constant"},
       {planner::Trend::Falling, "falling"}}};
};
