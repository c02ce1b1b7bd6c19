// Raw timings of communication, for the simulator to fit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/samples.hpp"
#include "runtime/communicator.hpp"
#include "runtime/job_layout.hpp"

namespace meshplan::runtime {

struct MeasureOptions {
  /// Messages, ascending: what one rank passes in. Empty: 8 B to 64 MiB, by fours.
  std::vector<std::int64_t> bytes;
  /// Sizes of the groups; empty: powers of two up to all ranks, and all ranks.
  std::vector<int> group_sizes;
  std::vector<program::CommOp> ops;  // empty: all but point-to-point
  int min_repeats = 5;
  int max_repeats = 50;
  /// For one (operation, group size, message); a larger message is skipped once the one before it
  /// could not even finish min_repeats in this time.
  Seconds budget_per_case{0.2};
  /// For all of them. Small messages of every case are timed before larger ones, so that what does
  /// not fit is the largest messages.
  Seconds total_budget{60.0};
};

/// Times collectives in groups of the first ranks of `world`; the other ranks wait, yielding, in a
/// barrier. One time is that of the slowest rank. All ranks call it at once and get the same
/// samples. `table` must be the one that `world` runs, so that samples name the algorithm that was
/// timed.
std::vector<program::CommSample> measure_collectives(Communicator& world, const JobLayout& layout,
                                                     const program::CollectiveTable& table,
                                                     const MeasureOptions& options);

/// Times ping-pongs between pairs of ranks, one pair after another: rank 0 with one rank of each
/// machine, and each rank with its next neighbour. All ranks call it at once and get the same
/// samples.
std::vector<program::LinkSample> measure_links(Communicator& world, const JobLayout& layout,
                                               const MeasureOptions& options);

}  // namespace meshplan::runtime
