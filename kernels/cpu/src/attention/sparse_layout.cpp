#include "attention/sparse_layout.hpp"

namespace meshplan::kernels {

namespace {

/// Reserves `count` floats at the end, on a cache line.
template <class Layout>
std::int64_t take(Layout& layout, std::int64_t count) {
  const std::int64_t offset = layout.size;
  layout.size += round_up(count, kMaxLanes);
  return offset;
}

}  // namespace

SelectKeysLayout select_keys_layout(const AttentionShape& shape) {
  SelectKeysLayout layout;
  layout.head = round_up(shape.head_size, kMaxLanes);
  layout.keys = round_up(shape.key_len, kKeyBlock);
  layout.keys_transposed = take(layout, layout.keys * layout.head);
  layout.key = take(layout, layout.keys * layout.head);
  layout.query = take(layout, shape.heads * layout.head);
  layout.weights = take(layout, shape.heads);
  layout.products = take(layout, shape.heads * kKeyBlock);
  layout.scores = take(layout, layout.keys + kMaxLanes);
  layout.order = take(layout, layout.keys + kMaxLanes);
  return layout;
}

IndexerLossLayout indexer_loss_layout(const AttentionShape& shape, int top_k, bool backward) {
  IndexerLossLayout layout;
  layout.head = round_up(shape.head_size, kMaxLanes);
  const std::int64_t choices = round_up(top_k, kKeyBlock);
  layout.query = take(layout, shape.heads * layout.head);
  layout.weights = take(layout, shape.heads);
  layout.key = take(layout, kKeyBlock * layout.head);
  layout.key_transposed = take(layout, kKeyBlock * layout.head);
  layout.products = take(layout, shape.heads * choices);
  layout.scores = take(layout, choices);
  if (!backward) return layout;
  layout.query_grad = take(layout, shape.heads * layout.head);
  layout.weight_grads = take(layout, shape.heads);
  layout.rows_grad = take(layout, kKeyBlock * layout.head);
  layout.key_grad = take(layout, kGradientKeys * layout.head);
  return layout;
}

SparseAttentionLayout sparse_attention_layout(const AttentionShape& shape, int top_k,
                                              bool backward) {
  SparseAttentionLayout layout;
  layout.head = round_up(shape.head_size, kMaxLanes);
  layout.value_size = shape.value_size();
  layout.value = round_up(layout.value_size, kMaxLanes);
  layout.keys = take(layout, shape.key_len * layout.head);
  layout.values = take(layout, shape.key_len * layout.value);
  layout.query = take(layout, layout.head);
  if (!backward) {
    layout.scores = take(layout, top_k);
    layout.output = take(layout, layout.value);
    return layout;
  }
  layout.output_grad = take(layout, layout.value);
  layout.query_grad = take(layout, layout.head);
  layout.key_grad = take(layout, shape.key_len * layout.head);
  layout.value_grad = take(layout, shape.key_len * layout.value);
  return layout;
}

}  // namespace meshplan::kernels
