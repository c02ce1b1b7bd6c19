#include "mixers/ssd_layout.hpp"

#include <algorithm>
#include <tuple>

#include "device/padding.hpp"

namespace meshplan::kernels {

namespace {

SsdLayout padded(const SsdShape& shape) {
  SsdLayout layout;
  layout.chunk = round_up(std::min(shape.chunk_size, shape.seq_len), kSsdSources);
  layout.head = round_up(shape.head_size, kMaxLanes);
  layout.state = round_up(shape.state_size, kMaxLanes);
  return layout;
}

void place(SsdLayout& layout, std::int64_t& offset, std::int64_t floats) {
  offset = layout.size;
  layout.size += round_up(floats, kMaxLanes);
}

}  // namespace

std::int64_t ssd_parts_per_group(const SsdShape& shape) {
  return (shape.heads / shape.groups + kSsdHeads - 1) / kSsdHeads;
}

std::int64_t num_ssd_units(const SsdShape& shape) {
  return shape.num_sequences * shape.groups * ssd_parts_per_group(shape);
}

SsdUnit ssd_unit(const SsdShape& shape, std::int64_t index) {
  const std::int64_t parts = ssd_parts_per_group(shape);
  const std::int64_t heads = shape.heads / shape.groups;
  const std::int64_t part = index % parts;
  const std::int64_t group = index / parts % shape.groups;
  return {.sequence = index / parts / shape.groups,
          .group = group,
          .first_head = group * heads + part * kSsdHeads,
          .num_heads = std::min(kSsdHeads, heads - part * kSsdHeads),
          .part = part};
}

SsdLayout ssd_forward_layout(const SsdShape& shape) {
  SsdLayout layout = padded(shape);
  const auto [q, p, n] = std::tuple(layout.chunk, layout.head, layout.state);
  for (std::int64_t* rows : {&layout.b, &layout.c, &layout.c_transposed})
    place(layout, *rows, q * n);
  place(layout, layout.scores, q * q);
  for (std::int64_t* numbers :
       {&layout.document_end, &layout.step, &layout.decay_high, &layout.decay_low,
        &layout.from_start, &layout.to_end, &layout.ahead})
    place(layout, *numbers, q);
  place(layout, layout.weights, 2 * kSsdSources * q);
  for (std::int64_t* rows : {&layout.x, &layout.y}) place(layout, *rows, q * p);
  for (std::int64_t* state : {&layout.h, &layout.state_transposed}) place(layout, *state, p * n);
  return layout;
}

SsdLayout ssd_backward_layout(const SsdShape& shape) {
  SsdLayout layout = ssd_forward_layout(shape);
  const auto [q, p, n] = std::tuple(layout.chunk, layout.head, layout.state);
  for (std::int64_t* numbers : {&layout.slope, &layout.crossing, &layout.decay_grad, &layout.x_dot,
                                &layout.end_dot, &layout.start_dot})
    place(layout, *numbers, q);
  for (std::int64_t* rows : {&layout.dy, &layout.dy_transposed}) place(layout, *rows, q * p);
  place(layout, layout.score_grads, q * q);
  for (std::int64_t* rows : {&layout.db, &layout.dc, &layout.dc_of_head})
    place(layout, *rows, q * n);
  place(layout, layout.state_grads, kSsdHeads * p * n);
  return layout;
}

}  // namespace meshplan::kernels
