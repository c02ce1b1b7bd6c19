// From run-time types and alignments to template arguments, on the host.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "device/context.hpp"

namespace meshplan::kernels::cuda {

template <class T>
struct Type {
  using type = T;
};
template <int n>
using Count = std::integral_constant<int, n>;

/// Calls body(Type<T>{}) for float, __nv_bfloat16 or __half. @throws InvariantError otherwise
template <class Body>
void with_float_type(DType dtype, const Body& body) {
  require_float(dtype);
  if (dtype == DType::F32)
    body(Type<float>{});
  else if (dtype == DType::BF16)
    body(Type<__nv_bfloat16>{});
  else
    body(Type<__half>{});
}

/// A matrix operand as the alignment check sees it.
struct Operand {
  const void* data = nullptr;  // null operands are ignored
  std::int64_t stride = 0;     // elements; 0 for contiguous ranges and single rows
  std::int64_t element_bytes = 4;
};

/// Whether packs of `width` elements may be used on every row of every operand: at most 16 bytes
/// are accessed at once.
inline bool allows_packs(int width, std::initializer_list<Operand> operands) {
  for (const Operand& operand : operands) {
    const std::int64_t bytes = width * operand.element_bytes;
    const std::int64_t alignment = bytes < 16 ? bytes : 16;
    if (reinterpret_cast<std::uintptr_t>(operand.data) % static_cast<std::uintptr_t>(alignment) !=
        0)
      return false;
    if (operand.data != nullptr && operand.stride * operand.element_bytes % alignment != 0)
      return false;
  }
  return true;
}

/// Elements of T in 16 bytes.
template <class T>
constexpr int kPackWidth = 16 / static_cast<int>(sizeof(T));

/// Calls body(Count<wide>{}) if `aligned`, else body(Count<1>{}).
template <int wide, class Body>
void with_pack_width(bool aligned, const Body& body) {
  if (aligned)
    body(Count<wide>{});
  else
    body(Count<1>{});
}

}  // namespace meshplan::kernels::cuda
