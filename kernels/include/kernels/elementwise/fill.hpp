#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// x = value everywhere. Traffic: 1 element each.
struct Fill {
  std::int64_t count = 0;
  DType dtype = DType::F32;
  void* x = nullptr;
  float value = 0.0F;
};

}  // namespace meshplan::kernels
