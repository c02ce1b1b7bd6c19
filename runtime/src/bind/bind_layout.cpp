#include "bind/bound_operands.hpp"

namespace meshplan::runtime {

using program::ComputeKind;

/// The columns of x in parts, or back.
std::function<void()> OperatorBinder::Body::bind_parts(const Operands& o, bool divide) {
  const std::int64_t element = size_of(o.dtype());
  const std::int64_t whole_bytes = (divide ? o.in_shape(0) : o.out_shape(0)).back() * element;
  auto* whole = divide ? o.in<std::byte>(0) : o.out<std::byte>(0);
  std::vector<std::function<void()>> copies;
  for (std::size_t i = 0; i < 2; ++i) {
    const std::vector<std::int64_t> shape = divide ? o.out_shape(i) : o.in_shape(i);
    auto* part = divide ? o.out<std::byte>(i) : o.in<std::byte>(i);
    const std::int64_t bytes = shape.back() * element;
    copies.push_back(ready(kernels::CopyRows{.rows = shape.front(),
                                             .row_bytes = bytes,
                                             .x = divide ? whole : part,
                                             .x_stride_bytes = divide ? whole_bytes : bytes,
                                             .y = divide ? part : whole,
                                             .y_stride_bytes = divide ? bytes : whole_bytes}));
    whole += bytes;
  }
  return [copies] {
    for (const auto& copy : copies) copy();
  };
}

/// The first row of every sequence, or the gradient of all rows from that of the first ones.
std::function<void()> OperatorBinder::Body::bind_pool(const Operands& o) {
  const std::vector<std::int64_t> all = o.forward() ? o.in_shape(0) : o.out_shape(0);
  const std::int64_t sequences = program_.sizes.sequences;
  const std::int64_t row_bytes = all[1] * size_of(o.dtype());
  const std::int64_t sequence_bytes = all[0] / sequences * row_bytes;
  const kernels::CopyRows copy{.rows = sequences,
                               .row_bytes = row_bytes,
                               .x = o.in(0),
                               .x_stride_bytes = o.forward() ? sequence_bytes : row_bytes,
                               .y = o.out(0),
                               .y_stride_bytes = o.forward() ? row_bytes : sequence_bytes};
  if (o.forward()) return ready(copy);
  return both(ready(kernels::Fill{.count = all[0] * all[1], .dtype = o.dtype(), .x = o.out(0)}),
              ready(copy));
}

std::function<void()> OperatorBinder::Body::bind_layout(const Operands& o) {
  const std::vector<std::int64_t> from = o.in_shape(0);
  const std::vector<std::int64_t> to = o.out_shape(0);
  const std::int64_t element = size_of(o.dtype());
  const std::int64_t rows = to[to.size() - 2];
  auto* x = o.in<std::byte>(0);
  auto* y = o.out<std::byte>(0);
  if (o.work.kind == ComputeKind::SliceRows) {
    const std::int64_t row_bytes = to.back() * element;
    return ready(kernels::CopyRows{.rows = rows,
                                   .row_bytes = row_bytes,
                                   .x = x + place_.tp_rank * rows * row_bytes,
                                   .x_stride_bytes = row_bytes,
                                   .y = y,
                                   .y_stride_bytes = row_bytes});
  }
  // One side holds whole rows, the other the columns of one rank, or of all one after the other.
  const bool unpack = o.work.kind == ComputeKind::UnpackColumns;
  const bool one = o.work.kind == ComputeKind::SliceColumns;
  const std::vector<std::int64_t>& whole = unpack ? to : from;
  const std::vector<std::int64_t>& parts = unpack ? from : to;
  const std::int64_t part_rows = parts[parts.size() - 2];
  const std::int64_t first_row = unpack && o.work.tokens_sharded ? place_.tp_rank * rows : 0;
  std::vector<std::function<void()>> copies;
  for (int rank = one ? place_.tp_rank : 0; rank < (one ? place_.tp_rank + 1 : parts[0]); ++rank) {
    std::int64_t local = 0;
    for (const program::ShardSection& section : o.work.columns) {
      const std::int64_t column = section.begin + rank / section.copies * section.size;
      const std::int64_t part_row = (one ? 0 : rank * part_rows) + first_row;
      std::byte* inside = (unpack ? y : x) + column * element;
      std::byte* apart = (unpack ? x : y) + (part_row * parts.back() + local) * element;
      copies.push_back(
          ready(kernels::CopyRows{.rows = rows,
                                  .row_bytes = section.size * element,
                                  .x = unpack ? apart : inside,
                                  .x_stride_bytes = (unpack ? parts : whole).back() * element,
                                  .y = unpack ? inside : apart,
                                  .y_stride_bytes = (unpack ? whole : parts).back() * element}));
      local += section.size;
    }
  }
  return [copies] {
    for (const auto& copy : copies) copy();
  };
}

}  // namespace meshplan::runtime
