// Raw timings of communication, for the simulator to fit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/calibration/machine_speed.hpp"
#include "program/calibration/samples.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/job_layout.hpp"
#include "runtime/execute/device.hpp"
#include "runtime/measure/measure_options.hpp"
#include "runtime/measure/reference_product.hpp"

namespace meshplan::runtime {

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
