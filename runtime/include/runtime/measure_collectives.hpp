// Raw timings of communication, for the simulator to fit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/calibration/machine_speed.hpp"
#include "program/calibration/samples.hpp"
#include "runtime/communicator.hpp"
#include "runtime/device.hpp"
#include "runtime/job_layout.hpp"
#include "runtime/reference_product.hpp"

namespace meshplan::runtime {

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

/// What was timed, and how many of the timings were disturbed; alike on all ranks.
template <class Sample>
struct MeasuredMessages {
  std::vector<Sample> samples;
  program::Quietness quietness;  // its counts
};

/// Whose communication is timed. All ranks of `host` hold one.
struct MeasuredWorld {
  Communicator& host;             // also carries times from rank to rank
  Device* device = nullptr;       // null: host memory, by `host` itself
  Communicator* moves = nullptr;  // with a device: what Device::make_world gave
  /// Beside the timings; null: none, as where ranks outnumber cores and take turns anyway.
  ReferenceProduct* reference = nullptr;
};

/// Times collectives in groups of the first ranks of the world; the other ranks wait, yielding, in
/// a barrier. One time is that of the slowest rank. All ranks call it at once and get the same
/// samples. `table` must be the one that the host's world runs, so that samples name the algorithm
/// that was timed. Where the device drives communication, a time is the mean of up to 20 calls that
/// are queued one after another, between two stamps of the device, and the algorithm is Library's.
MeasuredMessages<program::CommSample> measure_collectives(const MeasuredWorld& world,
                                                          const JobLayout& layout,
                                                          const program::CollectiveTable& table,
                                                          const MeasureOptions& options);

/// Times ping-pongs between pairs of ranks, one pair after another: rank 0 with one rank of each
/// machine, and each rank with its next neighbour; on GPUs each rank with all others of its
/// machine. All ranks call it at once and get the same samples.
MeasuredMessages<program::LinkSample> measure_links(const MeasuredWorld& world,
                                                    const JobLayout& layout,
                                                    const MeasureOptions& options);

}  // namespace meshplan::runtime
