#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// to = from, between F32 and BF16 (round to nearest even; NaN stays NaN). The ranges do not
/// overlap.
struct Convert {
  std::int64_t count = 0;
  DType from_dtype = DType::F32;
  const void* from = nullptr;
  DType to_dtype = DType::F32;
  void* to = nullptr;
};

}  // namespace meshplan::kernels
