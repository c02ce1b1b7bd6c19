// How much memory is cold: what a timing must go round so that it finds none of it in a cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/execute/device.hpp"

namespace meshplan::runtime {

/// More than the caches of a processor that one rank may hold.
constexpr std::int64_t kColdHostBytes = 96 << 20;

/// Twice the cache of a GPU. @param device  null: host memory
inline std::int64_t cold_bytes(const Device* device) {
  if (device == nullptr || !device->gpu()) return kColdHostBytes;
  return std::max(kColdHostBytes, static_cast<std::int64_t>(2 * device->gpu()->cache_bytes));
}

}  // namespace meshplan::runtime
