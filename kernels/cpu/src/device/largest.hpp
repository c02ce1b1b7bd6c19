// The largest magnitude of a matrix: what a scale of FP8 codes is made of.
#pragma once

#include "core/dtype.hpp"
#include "device/context.hpp"

namespace meshplan::kernels::cpu {

/// 0 if there is nothing; a NaN is never larger. In any dtype that kernels compute in.
float largest_magnitude(const Context& context, const void* data, std::int64_t rows,
                        std::int64_t columns, std::int64_t stride, DType dtype);

/// What norms and activations leave of the result that they have just written. A processor reads it
/// again for that: its FP8 is there for its numbers, not for speed.
/// @param largest  one number, or null
void keep_largest(const Context& context, float* largest, const void* data, std::int64_t rows,
                  std::int64_t columns, std::int64_t stride, DType dtype);

}  // namespace meshplan::kernels::cpu
