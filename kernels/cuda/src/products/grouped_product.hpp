// The three products of grouped layers as one: what their kernels get.
#pragma once

#include <cstdint>

#include "device/context.hpp"

namespace meshplan::kernels::cuda {

/// Which way the operands of a product lie in memory: result (m, n), summed over k.
enum class Product {
  RowsByRows,       // a (m, k), b (n, k): y = x w^T; groups divide m
  RowsByColumns,    // a (m, k), b (k, n): dx = dy w; groups divide m
  ColumnsByColumns  // a (k, m), b (k, n): dw = dy^T x; groups divide k
};

/// One product for each group, row-major. The dimension that groups divide (see Product) is not
/// given here: group g has [offsets[g], offsets[g + 1]) of it, in `a` and, where it is m, in the
/// result, where it is k, in `b`. What a group has for itself lies behind that of the group before,
/// without gaps: `b` and the bias, or the result.
struct GroupedProduct {
  std::int64_t num_groups = 0;
  const std::int32_t* offsets = nullptr;  // (num_groups + 1), in device memory
  std::int64_t rows = 0;                  // m of each group; 0 where groups divide it
  std::int64_t columns = 0;               // n
  std::int64_t depth = 0;                 // k of each group; 0 where groups divide it
  const void* a = nullptr;
  std::int64_t a_stride = 0;
  const void* b = nullptr;
  std::int64_t b_stride = 0;
  const void* bias = nullptr;  // (num_groups, columns), of T, or null
  void* result = nullptr;      // of T; fp32 where groups divide k
  std::int64_t result_stride = 0;
  bool accumulate = false;  // add to the result; where groups divide k
};

/// Most tiles of (tile_rows, tile_columns) that the results of all groups have, where all groups
/// together have at most `max_rows` rows.
inline std::int64_t most_tiles(Product product, const GroupedProduct& op, std::int64_t max_rows,
                               std::int64_t tile_rows, std::int64_t tile_columns) {
  const std::int64_t row_tiles = product == Product::ColumnsByColumns
                                     ? op.num_groups * ceil_div(op.rows, tile_rows)
                                     : ceil_div(max_rows, tile_rows) + op.num_groups;
  return row_tiles * ceil_div(op.columns, tile_columns);
}

/// Whether the kernel on wgmma computes this: on sm_90, if it was compiled for sm_90a, in bf16 and
/// fp16, if every row of every operand begins at a multiple of 16 bytes and fills whole ones.
bool runs_on_wgmma(const Context& context, Product product, const GroupedProduct& op, DType dtype);
void enqueue_on_wgmma(const Context& context, Product product, const GroupedProduct& op,
                      DType dtype, std::int64_t max_rows);

}  // namespace meshplan::kernels::cuda
