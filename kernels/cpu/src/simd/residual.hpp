// The residual of a norm's input. Inlined into each instruction set's files.
#pragma once

#include "simd/vec.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

/// Row t of op.sum, which is now x + residual.
template <class T, class Op>
const T* add_residual(const T* x, const Op& op, int64_t t) {
  const T* residual = static_cast<const T*>(op.residual) + t * op.x_stride;
  T* row = static_cast<T*>(op.sum) + t * op.x_stride;
  for_each_vec(0, op.size, [&](int64_t i, auto part) {
    store(row + i, load(x + i, part) + load(residual + i, part), part);
  });
  return row;
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
