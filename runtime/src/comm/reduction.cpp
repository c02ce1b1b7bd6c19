// Sums are taken in blocks that stay in the first-level cache, in the accumulator's type.
#include "comm/reduction.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "core/error.hpp"

// One binary for every x86-64: the loader picks the widest version that the CPU has. (The
// sanitizers run before the loader's choice is made.)
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MESHPLAN_CPU_VERSIONS \
  __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define MESHPLAN_CPU_VERSIONS
#endif

namespace meshplan::runtime {
namespace {

constexpr std::int64_t kBlock = 1024;  // elements

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

inline float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

inline void from_float(float value, Bf16& out) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40U;  // rounding could carry a NaN to infinity
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  out.bits = static_cast<std::uint16_t>(is_nan ? quiet_nan : rounded);
}

inline float to_float(F16 value) {
  return static_cast<float>(std::bit_cast<_Float16>(value.bits));
}

inline void from_float(float value, F16& out) {
  out.bits = std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, Bf16> || std::is_same_v<T, F16>, float, T>;

template <class T>
inline Accumulator<T> widen(T value) {
  if constexpr (std::is_same_v<T, Accumulator<T>>)
    return value;
  else
    return to_float(value);
}

template <class T>
inline void narrow(Accumulator<T> value, T& out) {
  if constexpr (std::is_same_v<T, Accumulator<T>>)
    out = value;
  else
    from_float(value, out);
}

struct Add {
  template <class A>
  static A apply(A a, A b) {
    // Signed integers wrap, as they do on every device.
    if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<std::make_unsigned_t<A>>(a) +
                            static_cast<std::make_unsigned_t<A>>(b));
    else
      return a + b;
  }
};
struct Multiply {
  template <class A>
  static A apply(A a, A b) {
    if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<std::make_unsigned_t<A>>(a) *
                            static_cast<std::make_unsigned_t<A>>(b));
    else
      return a * b;
  }
};
struct Minimum {
  template <class A>
  static A apply(A a, A b) {
    return b < a ? b : a;
  }
};
struct Maximum {
  template <class A>
  static A apply(A a, A b) {
    return a < b ? b : a;
  }
};

template <class T, class Op>
[[gnu::always_inline]] inline void reduce_blocks(std::span<const void* const> sources, void* to,
                                                 std::int64_t count, int divisor) {
  using A = Accumulator<T>;
  alignas(64) std::array<A, kBlock> sum;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const auto length = static_cast<std::size_t>(std::min(kBlock, count - begin));
    const T* first = static_cast<const T*>(sources[0]) + begin;
    for (std::size_t i = 0; i < length; ++i) sum[i] = widen(first[i]);
    for (const void* source : sources.subspan(1)) {
      const T* next = static_cast<const T*>(source) + begin;
      for (std::size_t i = 0; i < length; ++i) sum[i] = Op::apply(sum[i], widen(next[i]));
    }
    if (divisor != 1)
      for (std::size_t i = 0; i < length; ++i) sum[i] = sum[i] / static_cast<A>(divisor);
    T* out = static_cast<T*>(to) + begin;
    for (std::size_t i = 0; i < length; ++i) narrow(sum[i], out[i]);
  }
}

template <class T>
[[gnu::always_inline]] inline void reduce_elements(ReduceOp op,
                                                   std::span<const void* const> sources, void* to,
                                                   std::int64_t count, int divisor) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return reduce_blocks<T, Add>(sources, to, count, divisor);
    case ReduceOp::Prod:
      return reduce_blocks<T, Multiply>(sources, to, count, divisor);
    case ReduceOp::Min:
      return reduce_blocks<T, Minimum>(sources, to, count, divisor);
    case ReduceOp::Max:
      return reduce_blocks<T, Maximum>(sources, to, count, divisor);
  }
}

using Sources = std::span<const void* const>;

MESHPLAN_CPU_VERSIONS void reduce_f64(ReduceOp op, Sources from, void* to, std::int64_t n, int d) {
  reduce_elements<double>(op, from, to, n, d);
}
MESHPLAN_CPU_VERSIONS void reduce_f32(ReduceOp op, Sources from, void* to, std::int64_t n, int d) {
  reduce_elements<float>(op, from, to, n, d);
}
MESHPLAN_CPU_VERSIONS void reduce_f16(ReduceOp op, Sources from, void* to, std::int64_t n, int d) {
  reduce_elements<F16>(op, from, to, n, d);
}
MESHPLAN_CPU_VERSIONS void reduce_bf16(ReduceOp op, Sources from, void* to, std::int64_t n, int d) {
  reduce_elements<Bf16>(op, from, to, n, d);
}
MESHPLAN_CPU_VERSIONS void reduce_i64(ReduceOp op, Sources from, void* to, std::int64_t n, int d) {
  reduce_elements<std::int64_t>(op, from, to, n, d);
}
MESHPLAN_CPU_VERSIONS void reduce_i32(ReduceOp op, Sources from, void* to, std::int64_t n, int d) {
  reduce_elements<std::int32_t>(op, from, to, n, d);
}

}  // namespace

bool is_reducible(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::F64:
    case DType::F32:
    case DType::F16:
    case DType::BF16:
      return true;
    case DType::I64:
    case DType::I32:
      return op != ReduceOp::Avg;
    case DType::I8:
    case DType::U8:
      return false;
  }
  return false;
}

void reduce_in_order(DType dtype, ReduceOp op, std::span<const void* const> sources, void* to,
                     std::int64_t count, int divisor) {
  switch (dtype) {
    case DType::F64:
      return reduce_f64(op, sources, to, count, divisor);
    case DType::F32:
      return reduce_f32(op, sources, to, count, divisor);
    case DType::F16:
      return reduce_f16(op, sources, to, count, divisor);
    case DType::BF16:
      return reduce_bf16(op, sources, to, count, divisor);
    case DType::I64:
      return reduce_i64(op, sources, to, count, divisor);
    case DType::I32:
      return reduce_i32(op, sources, to, count, divisor);
    case DType::I8:
    case DType::U8:
      break;
  }
  throw InvariantError("8-bit elements cannot be reduced");
}

}  // namespace meshplan::runtime
