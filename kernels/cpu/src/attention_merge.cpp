// One softmax over the keys of several attentions. It moves memory and computes next to nothing, so
// it is left to the compiler.
#include <bit>
#include <cmath>

#include "core/error.hpp"
#include "cpu_backend.hpp"
#include "threads.hpp"

namespace meshplan::kernels {

namespace {

constexpr std::int64_t kRowGrain = 16;  // tokens below which a second thread costs more

struct Bf16Bits {
  std::uint16_t bits;
};
struct F16Bits {
  std::uint16_t bits;
};

float to_float(float value) {
  return value;
}
float to_float(Bf16Bits value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
float to_float(F16Bits value) {
  return static_cast<float>(std::bit_cast<_Float16>(value.bits));
}
void set(float& to, float value) {
  to = value;
}
void set(Bf16Bits& to, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);  // to nearest even
  const std::uint32_t kept = std::isnan(value) ? bits | 0x400000U : rounded;
  to.bits = static_cast<std::uint16_t>(kept >> 16);
}
void set(F16Bits& to, float value) {
  to.bits = std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}

/// One head of one token.
template <class T, class U>
void merge_head(T* o, const U* other_o, int size, float& lse, float other_lse) {
  if (other_lse == -INFINITY) return;
  const float largest = std::max(lse, other_lse);
  const float own = std::exp(lse - largest);
  const float other = std::exp(other_lse - largest);
  const float inverse = 1.0F / (own + other);
  for (int i = 0; i < size; ++i)
    set(o[i], (own * to_float(o[i]) + other * to_float(other_o[i])) * inverse);
  lse = largest + std::log(own + other);
}

template <class T, class U>
void merge_rows(const AttentionMerge& op, Range rows) {
  for (std::int64_t t = rows.begin; t < rows.end; ++t)
    for (int head = 0; head < op.heads; ++head)
      merge_head(static_cast<T*>(op.o) + t * op.o_stride + head * op.head_size,
                 static_cast<const U*>(op.other_o) + t * op.other_o_stride + head * op.head_size,
                 op.head_size, op.lse[t * op.heads + head], op.other_lse[t * op.heads + head]);
}

/// Calls use with a value of the type that holds such numbers.
template <class Use>
void with_type(DType dtype, const Use& use) {
  if (dtype == DType::F32) return use(0.0F);
  if (dtype == DType::BF16) return use(Bf16Bits{});
  require_invariant(dtype == DType::F16, "attention is fp32, bf16 or fp16");
  use(F16Bits{});
}

}  // namespace

void CpuBackend::run(const AttentionMerge& op) {
  with_type(op.dtype, [&]<class T>(T /*type*/) {
    with_type(op.other_dtype, [&]<class U>(U /*type*/) {
      parallel_for(num_threads_, op.tokens, kRowGrain,
                   [&](Range rows, int /*thread*/) { merge_rows<T, U>(op, rows); });
    });
  });
}

}  // namespace meshplan::kernels
