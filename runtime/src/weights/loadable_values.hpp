// Weights that are no numbers, or none in the format that a run computes in, are found where they
// are loaded: the first step would blame another tensor for them, or none (docs/checkpoints.md).
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/dtype.hpp"

namespace meshplan::runtime {

struct SafeTensor;

/// Is every value finite when it is rounded to `dtype` (F32, F16 or BF16)?
bool all_finite(std::span<const float> values, DType dtype);

/// "FILE: TENSOR: 3 of 64 values are not finite in bf16, the first at [1, 17]: 1e+39"; nothing if
/// all are. Reads the whole tensor.
/// @param dtype  that the values are rounded to
std::optional<std::string> describe_not_finite(const std::string& file, const std::string& tensor,
                                               const SafeTensor& data, DType dtype);

}  // namespace meshplan::runtime
