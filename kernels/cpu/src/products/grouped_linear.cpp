// The groups one after the other, in blocks of rows whose sizes repeat.
#include <algorithm>
#include <bit>

#include "core/error.hpp"
#include "device/loops.hpp"
#include "products/operators.hpp"

namespace meshplan::kernels::cpu {

namespace {

/// Row counts change in every step, and oneDNN prepares each shape that it sees. So a group
/// is done in full blocks and then in powers of two: at most 9 shapes, whatever the router does.
constexpr std::int64_t kBlockRows = 256;

constexpr std::int64_t block_rows(std::int64_t left) {
  return std::min(kBlockRows,
                  static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(left))));
}

/// The dense operation on `rows` rows from `first_row` on, which belong to `group`.
LinearForward part_of(const GroupedLinearForward& op, std::int64_t group, std::int64_t first_row,
                      std::int64_t rows) {
  const auto& [groups, max_rows, in, out] = op.shape;
  const std::int64_t element = size_of(op.dtype);
  return {.shape = {rows, in, out},
          .dtype = op.dtype,
          .x = offset(op.x, first_row * op.x_stride * element),
          .x_stride = op.x_stride,
          .weight = offset(op.weight, group * out * in * element),
          .weight_stride = in,
          .bias = offset(op.bias, group * out * element),
          .y = offset(op.y, first_row * op.y_stride * element),
          .y_stride = op.y_stride};
}
LinearInputGrad part_of(const GroupedLinearInputGrad& op, std::int64_t group,
                        std::int64_t first_row, std::int64_t rows) {
  const auto& [groups, max_rows, in, out] = op.shape;
  const std::int64_t element = size_of(op.dtype);
  return {.shape = {rows, in, out},
          .dtype = op.dtype,
          .dy = offset(op.dy, first_row * op.dy_stride * element),
          .dy_stride = op.dy_stride,
          .weight = offset(op.weight, group * out * in * element),
          .weight_stride = in,
          .dx = offset(op.dx, first_row * op.dx_stride * element),
          .dx_stride = op.dx_stride};
}
LinearWeightGrad part_of(const GroupedLinearWeightGrad& op, std::int64_t group,
                         std::int64_t first_row, std::int64_t rows) {
  const auto& [groups, max_rows, in, out] = op.shape;
  const std::int64_t element = size_of(op.dtype);
  return {.shape = {rows, in, out},
          .dtype = op.dtype,
          .dy = offset(op.dy, first_row * op.dy_stride * element),
          .dy_stride = op.dy_stride,
          .x = offset(op.x, first_row * op.x_stride * element),
          .x_stride = op.x_stride,
          .dweight = op.dweight == nullptr ? nullptr : op.dweight + group * out * in,
          .dweight_stride = in,
          .dbias = op.dbias == nullptr ? nullptr : op.dbias + group * out,
          .accumulate = op.accumulate};
}

template <class Op>
std::int64_t largest_scratch(const Context& context, const Op& op) {
  std::int64_t bytes = 0;
  for (std::int64_t rows = 1; rows <= std::min(kBlockRows, op.shape.max_rows); rows *= 2)
    bytes = std::max(bytes, scratch_bytes(context, part_of(op, 0, 0, rows)));
  return bytes;
}

/// Calls body(group, first row, rows, whether the group begins) for all blocks, groups ascending;
/// once with 0 rows for a group without any.
template <class Op, class Body>
void for_each_block(const Op& op, const Body& body) {
  const std::int32_t* offsets = op.offsets.host;
  require_invariant(offsets != nullptr, "a CPU needs the group offsets on the host");
  require_invariant(offsets[0] == 0, "the first group begins at row 0");
  for (std::int64_t group = 0; group < op.shape.num_groups; ++group) {
    std::int64_t row = offsets[group];
    const std::int64_t end = offsets[group + 1];
    require_invariant(row <= end && end <= op.shape.max_rows,
                      "group offsets ascend and stay inside the buffers");
    if (row == end) body(group, row, std::int64_t{0}, true);
    for (bool first = true; row < end; first = false) {
      const std::int64_t rows = block_rows(end - row);
      body(group, row, rows, first);
      row += rows;
    }
  }
}

}  // namespace

std::int64_t scratch_bytes(const Context& context, const GroupedLinearForward& op) {
  return largest_scratch(context, op);
}
std::int64_t scratch_bytes(const Context& context, const GroupedLinearInputGrad& op) {
  return largest_scratch(context, op);
}
std::int64_t scratch_bytes(const Context& context, const GroupedLinearWeightGrad& op) {
  return largest_scratch(context, op);
}

void run(const Context& context, const GroupedLinearForward& op) {
  for_each_block(op, [&](std::int64_t group, std::int64_t row, std::int64_t rows, bool) {
    if (rows > 0) run(context, part_of(op, group, row, rows));
  });
}
void run(const Context& context, const GroupedLinearInputGrad& op) {
  for_each_block(op, [&](std::int64_t group, std::int64_t row, std::int64_t rows, bool) {
    if (rows > 0) run(context, part_of(op, group, row, rows));
  });
}
void run(const Context& context, const GroupedLinearWeightGrad& op) {
  for_each_block(op, [&](std::int64_t group, std::int64_t row, std::int64_t rows, bool first) {
    LinearWeightGrad part = part_of(op, group, row, rows);
    part.accumulate = op.accumulate || !first;
    run(context, part);
  });
}

}  // namespace meshplan::kernels::cpu
