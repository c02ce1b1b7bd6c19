#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// y = factor x on contiguous ranges; y may be x. Traffic: 2 elements each.
struct Scale {
  std::int64_t count = 0;
  DType dtype = DType::F32;
  float factor = 1.0F;
  const void* x = nullptr;
  void* y = nullptr;
};

}  // namespace meshplan::kernels
