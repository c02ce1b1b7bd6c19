#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.hpp"
#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

/// Can elements of this dtype be reduced by this operation? (No 8-bit types; Avg: floating point.)
bool is_reducible(DType dtype, ReduceOp op);

/// to[i] = sources[0][i] op sources[1][i] op ..., left to right; fp16 and bf16 are added in fp32
/// and rounded once, to the nearest even. `to` may be one of the sources.
/// @param divisor  the result is divided by it (Avg); 1 leaves it alone. Floating point only.
void reduce_in_order(DType dtype, ReduceOp op, std::span<const void* const> sources, void* to,
                     std::int64_t count, int divisor);

}  // namespace meshplan::runtime
