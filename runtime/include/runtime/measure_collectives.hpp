// Raw timings of communication, for the simulator to fit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/samples.hpp"
#include "runtime/communicator.hpp"
#include "runtime/device.hpp"
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

/// Whose communication is timed. All ranks of `host` hold one.
struct MeasuredWorld {
  Communicator& host;             // also carries times from rank to rank
  Device* device = nullptr;       // null: host memory, by `host` itself
  Communicator* moves = nullptr;  // with a device: what Device::make_world gave
};

/// Times collectives in groups of the first ranks of the world; the other ranks wait, yielding, in
/// a barrier. One time is that of the slowest rank. All ranks call it at once and get the same
/// samples. `table` must be the one that the host's world runs, so that samples name the algorithm
/// that was timed. Where the device drives communication, a time is the mean of up to 20 calls that
/// are queued one after another, between two stamps of the device, and the algorithm is Library's.
std::vector<program::CommSample> measure_collectives(const MeasuredWorld& world,
                                                     const JobLayout& layout,
                                                     const program::CollectiveTable& table,
                                                     const MeasureOptions& options);

/// Times ping-pongs between pairs of ranks, one pair after another: rank 0 with one rank of each
/// machine, and each rank with its next neighbour; on GPUs each rank with all others of its
/// machine. All ranks call it at once and get the same samples.
std::vector<program::LinkSample> measure_links(const MeasuredWorld& world, const JobLayout& layout,
                                               const MeasureOptions& options);

}  // namespace meshplan::runtime
