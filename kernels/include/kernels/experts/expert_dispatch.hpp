// Moving tokens to the rows of their experts and back.
//
// T tokens, K choices a token, X experts, D features. Choice c = t K + k is token t's k-th. The
// T K rows are sorted by expert, rows of one expert in the order of their choices. A choice of -1
// is one that an expert's capacity dropped: it has no row (-1), counts nothing, and its probability
// has no gradient; the last rows then belong to no choice (-1) and are neither read nor written.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// Which row each choice goes to. Every row and every choice has exactly one partner, or none.
struct DispatchPlan {
  std::int64_t tokens = 0;
  int experts = 0;
  int top_k = 0;
  const std::int32_t* choices = nullptr;  // (T, K), each in [0, X), or -1
  std::int32_t* offsets = nullptr;        // (X + 1): expert x has rows offsets[x] to offsets[x + 1]
  std::int32_t* choice_of_row = nullptr;  // (T K)
  std::int32_t* row_of_choice = nullptr;  // (T K)
};

/// rows[r] = x[choice_of_row[r] / K]. Traffic: 2 T K D elements.
struct DispatchForward {
  std::int64_t tokens = 0;
  int top_k = 0;
  std::int64_t size = 0;  // D
  DType dtype = DType::F32;
  const std::int32_t* choice_of_row = nullptr;
  const void* x = nullptr;  // (T, D)
  std::int64_t x_stride = 0;
  void* rows = nullptr;  // (T K, D)
  std::int64_t rows_stride = 0;
};

/// dx[t] = sum over k, ascending, of drows[row_of_choice[t K + k]]. Traffic: (K + 1) T D elements.
struct DispatchBackward {
  std::int64_t tokens = 0;
  int top_k = 0;
  std::int64_t size = 0;
  DType dtype = DType::F32;
  const std::int32_t* row_of_choice = nullptr;
  const void* drows = nullptr;  // (T K, D)
  std::int64_t drows_stride = 0;
  void* dx = nullptr;  // (T, D)
  std::int64_t dx_stride = 0;
};

/// y[t] = sum over k, ascending, of probability[t, k] rows[row_of_choice[t K + k]], in fp32.
/// Traffic: (K + 1) T D elements.
struct CombineForward {
  std::int64_t tokens = 0;
  int top_k = 0;
  std::int64_t size = 0;
  DType dtype = DType::F32;
  const std::int32_t* row_of_choice = nullptr;
  const float* probabilities = nullptr;  // (T, K)
  const void* rows = nullptr;            // (T K, D)
  std::int64_t rows_stride = 0;
  void* y = nullptr;  // (T, D)
  std::int64_t y_stride = 0;
};

/// drows[row] = probability dy[t] and dprobability[t, k] = dy[t] . rows[row], for the row of each
/// choice. Traffic: 3 T K D elements (dy from cache after its first use).
struct CombineBackward {
  std::int64_t tokens = 0;
  int top_k = 0;
  std::int64_t size = 0;
  DType dtype = DType::F32;
  const std::int32_t* row_of_choice = nullptr;
  const float* probabilities = nullptr;  // (T, K)
  const void* rows = nullptr;            // (T K, D)
  const void* dy = nullptr;              // (T, D)
  std::int64_t dy_stride = 0;
  void* drows = nullptr;            // (T K, D), may be rows
  std::int64_t rows_stride = 0;     // of rows and drows
  float* dprobabilities = nullptr;  // (T, K)
};

}  // namespace meshplan::kernels
