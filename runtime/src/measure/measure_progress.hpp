// What a progress thread costs: an all-reduce that it moves beside computation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "program/calibration/calibration.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/job_layout.hpp"

namespace meshplan::runtime {

/// Bytes of gradient buckets: 256 KiB to 16 MiB.
std::span<const std::int64_t> progress_sizes();

/// All ranks of `world` compute about half as long as an all-reduce takes, alone and beside one
/// that the progress thread moves. Times are those of the slowest rank. All ranks call it at once
/// and get the same samples. Without a progress thread before and after.
std::vector<program::ProgressSample> measure_progress(Communicator& world, const JobLayout& layout,
                                                      kernels::Backend& backend,
                                                      std::span<const std::int64_t> sizes);

}  // namespace meshplan::runtime
