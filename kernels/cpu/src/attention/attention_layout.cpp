#include "attention/attention_layout.hpp"

#include <algorithm>

namespace meshplan::kernels {

namespace {

AttentionLayout padded_sizes(const AttentionShape& shape) {
  AttentionLayout layout;
  layout.head = round_up(shape.head_size, kMaxLanes);
  layout.value_size = shape.value_size();
  layout.value = round_up(layout.value_size, kMaxLanes);
  layout.queries = round_up(shape.query_len, kQueryBlock);
  layout.keys = round_up(shape.key_len, kKeyBlock);
  return layout;
}

/// Reserves `count` floats at the end, on a cache line.
std::int64_t take(AttentionLayout& layout, std::int64_t count) {
  const std::int64_t offset = layout.size;
  layout.size += round_up(count, kMaxLanes);
  return offset;
}

}  // namespace

AttentionLayout attention_forward_layout(const AttentionShape& shape) {
  AttentionLayout layout = padded_sizes(shape);
  layout.keys_transposed = take(layout, layout.keys * layout.head);
  // Holds the keys until they are transposed, then the values.
  layout.values = take(layout, layout.keys * std::max(layout.head, layout.value));
  layout.query = take(layout, kQueryBlock * layout.head);
  layout.scores = take(layout, kQueryBlock * kKeyBlock);
  layout.output = take(layout, kQueryBlock * layout.value);
  layout.row_max = take(layout, kQueryBlock);
  layout.row_sum = take(layout, kQueryBlock);
  return layout;
}

AttentionLayout attention_backward_layout(const AttentionShape& shape) {
  AttentionLayout layout = padded_sizes(shape);
  layout.keys_transposed = take(layout, layout.keys * layout.head);
  layout.values_transposed = take(layout, layout.keys * layout.value);
  // Holds the values until they are transposed, then the keys.
  layout.key = take(layout, layout.keys * std::max(layout.head, layout.value));
  layout.key_grad = take(layout, layout.keys * layout.head);
  layout.value_grad = take(layout, layout.keys * layout.value);
  layout.query = take(layout, layout.queries * layout.head);
  layout.output_grad = take(layout, layout.queries * layout.value);
  layout.query_grad = take(layout, layout.queries * layout.head);
  layout.scores = take(layout, kQueryBlock * kKeyBlock);
  layout.score_grads = take(layout, kQueryBlock * kKeyBlock);
  layout.delta = take(layout, layout.queries);
  return layout;
}

}  // namespace meshplan::kernels
