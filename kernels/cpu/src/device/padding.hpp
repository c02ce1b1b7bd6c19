// Padding of what kernels pack into their scratch.
#pragma once

#include <cstdint>

namespace meshplan::kernels {

constexpr std::int64_t kMaxLanes = 16;  // of any instruction set: rows are padded to whole vectors

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace meshplan::kernels
