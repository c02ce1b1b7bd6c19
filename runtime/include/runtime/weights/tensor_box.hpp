// Rectangular parts of tensors, and copying between them: what resharding comes down to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/dtype.hpp"

namespace meshplan::runtime {

/// Elements [begin, begin + size) of every dimension of a tensor.
struct TensorBox {
  std::vector<std::int64_t> begin;
  std::vector<std::int64_t> size;

  std::int64_t elements() const;
  bool operator==(const TensorBox&) const = default;
};

/// All of a tensor.
TensorBox whole_box(std::span<const std::int64_t> shape);

/// Elements that both hold; nothing if there are none. Both have the same number of dimensions.
std::optional<TensorBox> intersection(const TensorBox& a, const TensorBox& b);

/// Distance between neighbours of every dimension of a dense tensor, in elements (row-major).
std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> shape);

/// Elements [begin, end) of a dense tensor, counted in row-major order, as disjoint boxes: at most
/// 2 * dimensions - 1 of them, in order.
std::vector<TensorBox> boxes_of_range(std::span<const std::int64_t> shape, std::int64_t begin,
                                      std::int64_t end);

/// Where the elements of `box` lie in host memory: `data` is its first element, `strides` are in
/// elements. Any dtype that converts to fp32: F64, F32, F16, BF16.
struct TensorSource {
  const std::byte* data = nullptr;
  DType dtype = DType::F32;
  TensorBox box;
  std::vector<std::int64_t> strides;
};
struct TensorTarget {
  float* data = nullptr;
  TensorBox box;
  std::vector<std::int64_t> strides;
};

/// Copies what both boxes hold. @returns the number of elements copied
/// @throws ConfigError for a dtype that holds no floating-point numbers
std::int64_t copy_overlap(const TensorSource& from, const TensorTarget& to);

/// out[i] = in[i] rounded to nearest even; a value too large becomes infinity.
/// @param dtype  F32, F16 or BF16
void convert_from_float(std::span<const float> in, DType dtype, std::byte* out);

}  // namespace meshplan::runtime
