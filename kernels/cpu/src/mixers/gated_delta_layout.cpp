#include "mixers/gated_delta_layout.hpp"

namespace meshplan::kernels {

namespace {

/// Reserves `count` floats at the end, on a cache line.
std::int64_t take(GatedDeltaLayout& layout, std::int64_t count) {
  const std::int64_t offset = layout.size;
  layout.size += round_up(count, kMaxLanes);
  return offset;
}

GatedDeltaLayout common_layout(const GatedDeltaShape& shape) {
  GatedDeltaLayout layout;
  layout.rows = round_up(shape.chunk_len, kDeltaBlock);
  layout.key = round_up(shape.key_size, kMaxLanes);
  layout.value = round_up(shape.value_size, kMaxLanes);
  layout.group = shape.value_heads / shape.key_heads;
  for (std::int64_t* of_rows :
       {&layout.query_norms, &layout.key_norms, &layout.beta, &layout.decay, &layout.decay_high,
        &layout.decay_low, &layout.from_begin, &layout.to_end})
    *of_rows = take(layout, layout.rows);
  for (std::int64_t* square :
       {&layout.query_keys, &layout.key_keys, &layout.scores, &layout.solver})
    *square = take(layout, layout.rows * layout.rows);
  for (std::int64_t* of_keys : {&layout.query, &layout.keys, &layout.keys_transposed})
    *of_keys = take(layout, layout.rows * layout.key);
  for (std::int64_t* of_values : {&layout.updates, &layout.output})
    *of_values = take(layout, layout.rows * layout.value);
  return layout;
}

}  // namespace

GatedDeltaLayout gated_delta_forward_layout(const GatedDeltaShape& shape) {
  GatedDeltaLayout layout = common_layout(shape);
  layout.state = take(layout, layout.group * layout.key * layout.value);
  return layout;
}

GatedDeltaLayout gated_delta_backward_layout(const GatedDeltaShape& shape) {
  GatedDeltaLayout layout = common_layout(shape);
  for (std::int64_t* of_rows :
       {&layout.products, &layout.reads, &layout.writes, &layout.later, &layout.decay_grads})
    *of_rows = take(layout, layout.rows);
  for (std::int64_t* square :
       {&layout.decays, &layout.score_grads, &layout.solver_grads, &layout.pairs})
    *square = take(layout, layout.rows * layout.rows);
  for (std::int64_t* of_keys : {&layout.query_grad, &layout.key_grad, &layout.part})
    *of_keys = take(layout, layout.rows * layout.key);
  for (std::int64_t* of_values : {&layout.update_grads, &layout.updates_transposed})
    *of_values = take(layout, layout.rows * layout.value);
  for (std::int64_t* of_state :
       {&layout.state, &layout.state_transposed, &layout.state_grad_transposed})
    *of_state = take(layout, layout.key * layout.value);
  layout.state_grad = take(layout, layout.group * layout.key * layout.value);
  return layout;
}

}  // namespace meshplan::kernels
