// How long a calibration measures, and what.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/units.hpp"
#include "program/program.hpp"

namespace meshplan::runtime {

class ReferenceProduct;

/// Timings of collectives and links.
struct MeasureOptions {
  /// Messages, ascending: what one rank passes in. Empty: 8 B to 64 MiB, by fours.
  std::vector<std::int64_t> bytes;
  /// Sizes of the groups; empty: powers of two up to all ranks, and all ranks.
  std::vector<int> group_sizes;
  std::vector<program::CommOp> ops;  // empty: all but point-to-point
  int min_repeats = 5;               // in all rounds
  int max_repeats = 50;
  Seconds budget_per_case{0.2};  // one (operation, group size, message), in all rounds
  /// For all of them. Sizes go from coarse to fine, so that what does not fit leaves gaps between
  /// sizes rather than the largest ones out; a message that would take more than a tenth of it is
  /// left out, too.
  Seconds total_budget{60.0};
  int rounds = 3;         // of all cases: see sampling.hpp
  int most_revisits = 3;  // of a case with too few undisturbed timings
};

/// Timings of operators.
struct OperatorMeasurement {
  double seconds_per_operator = 0.03;  // of repeats, alone and busy each
  int busy_ranks = 1;                  // ranks that run at once for `seconds_busy`: one per core
  /// For all operators: where there are too many, each gets less than seconds_per_operator. 0 = no
  /// limit.
  double total_seconds = 0;
  ReferenceProduct* reference = nullptr;  // beside the timings; null: none
};

/// Told after every operator: how many of how many are done.
using Progress = std::function<void(int done, int total)>;

}  // namespace meshplan::runtime
