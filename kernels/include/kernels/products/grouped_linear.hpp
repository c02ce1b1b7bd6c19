// Dense layers of several experts in one operation: the rows of one expert (a group) lie side by
// side, groups in order. Row-major with explicit strides, as in linear.hpp.
//
// G groups, R rows in the buffers, I input features, O output features. Rows at or beyond the last
// offset belong to nobody: they are neither read nor written.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// How many rows each group has is known only when the operation runs: the router decides.
struct GroupedLinearShape {
  std::int64_t num_groups = 0;  // G
  std::int64_t max_rows = 0;    // R: the last offset is at most this
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  bool operator==(const GroupedLinearShape&) const = default;
};

/// Group g has rows [offsets[g], offsets[g + 1]); offsets[0] is 0 and they ascend.
struct GroupOffsets {
  const std::int32_t* device = nullptr;  // (G + 1), memory of the backend
  /// (G + 1), the same numbers, read before `run` returns; null where the host does not know them,
  /// which only some backends can do without.
  const std::int32_t* host = nullptr;
};

/// y = x weight[g]^T [+ bias[g]] for the rows of each group; 2 I O FLOP a row.
/// Traffic: (I + O) elements a row + G O I elements.
struct GroupedLinearForward {
  GroupedLinearShape shape;
  DType dtype = DType::F32;
  GroupOffsets offsets;
  const void* x = nullptr;  // (R, I)
  std::int64_t x_stride = 0;
  const void* weight = nullptr;  // (G, O, I), contiguous
  const void* bias = nullptr;    // (G, O), contiguous, or null
  void* y = nullptr;             // (R, O)
  std::int64_t y_stride = 0;
};

/// dx = dy weight[g].
struct GroupedLinearInputGrad {
  GroupedLinearShape shape;
  DType dtype = DType::F32;
  GroupOffsets offsets;
  const void* dy = nullptr;  // (R, O)
  std::int64_t dy_stride = 0;
  const void* weight = nullptr;  // (G, O, I), contiguous
  void* dx = nullptr;            // (R, I)
  std::int64_t dx_stride = 0;
};

/// dweight[g] (+)= dy^T x and dbias[g] (+)= column sums of dy over the rows of each group, in fp32.
/// A group without rows adds nothing, or without `accumulate` becomes zero.
struct GroupedLinearWeightGrad {
  GroupedLinearShape shape;
  DType dtype = DType::F32;
  GroupOffsets offsets;
  const void* dy = nullptr;  // (R, O)
  std::int64_t dy_stride = 0;
  const void* x = nullptr;  // (R, I)
  std::int64_t x_stride = 0;
  float* dweight = nullptr;  // (G, O, I), contiguous, or null: then x is not read
  float* dbias = nullptr;    // (G, O), contiguous, or null
  bool accumulate = false;
};

}  // namespace meshplan::kernels
