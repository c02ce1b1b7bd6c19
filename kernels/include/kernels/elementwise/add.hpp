#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// sum = a + b on contiguous ranges; `sum` may be a or b. Traffic: 3 elements each.
struct Add {
  std::int64_t count = 0;
  DType dtype = DType::F32;
  const void* a = nullptr;
  const void* b = nullptr;
  void* sum = nullptr;
};

}  // namespace meshplan::kernels
