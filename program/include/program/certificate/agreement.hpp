// What a twin's run is compared in with one rank's, and how far apart they lie.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/certificate/tolerance.hpp"
#include "program/certificate/twin_run.hpp"

namespace meshplan::program {

constexpr std::string_view kGradient = "gradient";  // Compared::what of a parameter's

/// A number, or all of a tensor, beside what one rank has.
struct Compared {
  std::string what;       // "loss", "gradient", "update", "router choices", "message", ...
  std::string name;       // "step 1", "layers.0.mlp.down_proj.weight"
  double difference = 0;  // relative; of a tensor ||a - b|| / ||b||, of choices the part that moved
  double tolerance = 0;
  std::vector<std::int64_t> where;  // of a tensor or of choices: the element that differs most
  std::optional<double> value;      // there; none = not a finite number
  std::optional<double> expected;   // there, on one rank
  std::int64_t checked = 1;         // how many numbers this stands for (exact_check.hpp)
  bool agrees() const { return difference <= tolerance; }
  /// How far it is into its tolerance: above 1 it differs.
  double share() const;
};

/// Losses, gradient norms, router losses and choices of every step; every gradient of the first;
/// what the steps moved every weight by. Norms, later losses and updates only where weights move.
/// @param alone  what one rank makes
/// @param other  the same in another precision, one of the two being fp32: what lies between them
/// is
///   what rounding alone does; may be null
std::vector<Compared> compare(const TwinRun& run, const TwinRun& alone, const Tolerance& tolerance,
                              const TwinRun* other = nullptr);

}  // namespace meshplan::program
