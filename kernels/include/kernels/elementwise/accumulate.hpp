#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// sum += value on contiguous ranges whose types may differ (F32 += BF16). Traffic: 2 elements of
/// `sum` and 1 of `value` each.
struct Accumulate {
  std::int64_t count = 0;
  DType sum_dtype = DType::F32;
  void* sum = nullptr;
  DType value_dtype = DType::F32;
  const void* value = nullptr;
};

}  // namespace meshplan::kernels
