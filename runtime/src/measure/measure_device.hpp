// What a GPU is like apart from its operators: copies between host and device, and the cost of
// launching an operation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/calibration/calibration.hpp"
#include "runtime/execute/device.hpp"

namespace meshplan::runtime {

/// 4 KiB to 256 MiB.
std::span<const std::int64_t> copy_sizes();

/// Pinned host memory to and from the device, and within it, at each size; times of the device.
/// @param device  one with queues
std::vector<program::CopySample> measure_copies(Device& device, std::span<const std::int64_t> sizes,
                                                Seconds budget_per_case);

/// The smallest kernel, in a graph, by itself, and as the host sees it.
/// @param device  one with queues
program::LaunchSample measure_launch(Device& device);

}  // namespace meshplan::runtime
