#pragma once

#include <cstdint>

namespace meshplan::kernels {

/// y[r][c] = x[r][c] for R rows of C bytes: how columns are cut out, packed and put together.
/// Traffic: 2 R C bytes.
struct CopyRows {
  std::int64_t rows = 0;       // R
  std::int64_t row_bytes = 0;  // C
  const void* x = nullptr;
  std::int64_t x_stride_bytes = 0;
  void* y = nullptr;  // does not overlap x
  std::int64_t y_stride_bytes = 0;
};

}  // namespace meshplan::kernels
