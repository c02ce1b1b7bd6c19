#include "attention_rows.hpp"
#include "launch.cuh"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kThreads = 256;

/// Each of `matrices` (rows, columns) becomes (columns, rows). One number per row and head is so
/// little beside attention that uncoalesced reads do not matter.
__global__ void transpose_kernel(const float* from, float* to, std::int64_t matrices,
                                 std::int64_t rows, std::int64_t columns) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t size = rows * columns;
  if (i >= matrices * size) return;
  const std::int64_t at = i % size;  // in the result
  to[i] = from[i - at + at % rows * columns + at / rows];
}

void enqueue_transpose(const Context& context, const float* from, float* to, std::int64_t matrices,
                       std::int64_t rows, std::int64_t columns) {
  const std::int64_t count = matrices * rows * columns;
  launch(context,
         {.grid = dim3(static_cast<unsigned>(ceil_div(count, kThreads))), .block = dim3(kThreads)},
         transpose_kernel, from, to, matrices, rows, columns);
}

}  // namespace

void enqueue_rows_from_heads(const Context& context, const AttentionShape& shape, const float* from,
                             float* to) {
  enqueue_transpose(context, from, to, shape.num_sequences, shape.heads, shape.query_len);
}
void enqueue_heads_from_rows(const Context& context, const AttentionShape& shape, const float* from,
                             float* to) {
  enqueue_transpose(context, from, to, shape.num_sequences, shape.query_len, shape.heads);
}

}  // namespace meshplan::kernels::cuda
