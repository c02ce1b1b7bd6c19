// How the attention kernels are placed and launched.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "attention/attention_tiles.cuh"
#include "attention/flash_attention.hpp"
#include "device/dispatch.hpp"
#include "device/launch.cuh"

namespace meshplan::kernels::cuda {

/// AttentionShape::value_size(), which is the host's, in a kernel.
__device__ inline int value_size_of(const AttentionShape& shape) {
  return shape.value_head_size > 0 ? shape.value_head_size : shape.head_size;
}

/// The head of the sequence that a block works on.
struct HeadPlace {
  std::int64_t sequence;
  int head;
  int kv_head;
  int head_size;   // of queries and keys
  int value_size;  // of values and outputs
  __device__ HeadPlace(const AttentionShape& shape, unsigned block_head, unsigned block_sequence)
      : sequence(block_sequence),
        head(static_cast<int>(block_head)),
        kv_head(head / (shape.heads / shape.kv_heads)),
        head_size(shape.head_size),
        value_size(value_size_of(shape)) {}
  /// Head `which`, of `size` elements, of an operand whose sequences have `rows_per_sequence` rows.
  template <class T>
  __device__ HeadRows<T> rows(const void* data, std::int64_t stride, int which, int size,
                              std::int64_t rows_per_sequence, bool aligned) const {
    return {static_cast<const T*>(data) + sequence * rows_per_sequence * stride +
                std::int64_t{which} * size,
            stride, size, aligned};
  }
  template <class T>
  __device__ T* rows_to(void* data, std::int64_t stride, int which, int size,
                        std::int64_t rows_per_sequence) const {
    return static_cast<T*>(data) + sequence * rows_per_sequence * stride +
           std::int64_t{which} * size;
  }
};

struct StridedOperand {
  const void* data;
  std::int64_t stride;
};
/// Whether every head of every row can be copied 16 bytes at a time.
template <class T>
bool allows_copies(const AttentionShape& shape, std::initializer_list<StridedOperand> operands) {
  constexpr std::int64_t kWide = 16 / static_cast<std::int64_t>(sizeof(T));
  if (shape.head_size % kWide != 0 || shape.value_size() % kWide != 0) return false;
  for (const StridedOperand& operand : operands)
    if (operand.stride % kWide != 0 || reinterpret_cast<std::uintptr_t>(operand.data) % 16 != 0)
      return false;
  return true;
}

/// Calls body(Type<T>, Count<head>) with the smallest compiled head size that holds queries and
/// values. Three sizes keep the library small; the rest of a tile is zeros.
template <class Body>
void with_attention_types(DType dtype, const AttentionShape& shape, const Body& body) {
  const int head_size = std::max(shape.head_size, shape.value_size());
  const auto with_head = [&](auto type) {
    if (head_size <= 64)
      body(type, Count<64>{});
    else if (head_size <= 128)
      body(type, Count<128>{});
    else
      body(type, Count<256>{});
  };
  require_invariant(head_size <= kFlashMostHeadSize, "flash attention has heads of at most 256");
  if (dtype == DType::F32)
    with_head(Type<float>{});
  else if (dtype == DType::BF16)
    with_head(Type<__nv_bfloat16>{});
  else if (dtype == DType::F16)
    with_head(Type<__half>{});
  else
    throw InvariantError("flash attention computes in fp32, bf16 or fp16");
}

/// Grid (row tiles, heads, sequences).
template <class... Params, class... Args>
void launch_attention(const Context& context, const AttentionShape& shape, int heads,
                      std::int64_t row_tiles, int threads, std::size_t shared_bytes,
                      void (*kernel)(Params...), const Args&... args) {
  require_shared_memory(context, static_cast<std::int64_t>(shared_bytes), shape.head_size);
  launch(context,
         {.grid = dim3(static_cast<unsigned>(row_tiles), static_cast<unsigned>(heads),
                       static_cast<unsigned>(shape.num_sequences)),
          .block = dim3(static_cast<unsigned>(threads)),
          .shared_bytes = shared_bytes},
         kernel, args...);
}

}  // namespace meshplan::kernels::cuda
