// Attention to chosen keys, and the indexer that chooses them. Rows are whole: operands have no
// strides of their own, but for queries, keys and values, which lie side by side.
#include "bind/bound_operands.hpp"
#include "kernels/attention/indexer.hpp"
#include "kernels/attention/sparse_attention.hpp"

namespace meshplan::runtime {

/// Of a SelectKeys or an IndexerLoss, in either direction: queries, keys and weights come first.
kernels::Indexer OperatorBinder::Body::indexer_of(const Operands& o) const {
  const models::OpAttributes& a = o.work.attributes;
  const std::int64_t width = std::int64_t{a.heads} * a.head_size;
  return {.shape = {.num_sequences = o.sizes.sequences,
                    .query_len = local_seq_len(),
                    .key_len = local_seq_len(),
                    .heads = a.heads,
                    .kv_heads = 1,
                    .head_size = a.head_size,
                    .causal = a.causal,
                    .scale = static_cast<float>(a.scale)},
          .dtype = o.dtype(),
          .q = o.in(0),
          .q_stride = width,
          .k = o.in(1),
          .k_stride = a.head_size,
          .weights = o.in(2),
          .weights_stride = a.heads,
          .key_ranges = o.of_documents()};
}

std::function<void()> OperatorBinder::Body::bind_select_keys(const Operands& o) {
  return ready(
      kernels::SelectKeysForward{.indexer = indexer_of(o),
                                 .top_k = o.work.attributes.selected_keys,
                                 .choices = o.out<std::int32_t>(0),
                                 .uncounted_sequences = o.sizes.sequences - real_sequences(o)});
}

std::function<void()> OperatorBinder::Body::bind_indexer_loss(const Operands& o) {
  const kernels::Indexer indexer = indexer_of(o);
  const int top_k = o.work.attributes.selected_keys;
  if (o.forward())
    return ready(kernels::IndexerLossForward{.indexer = indexer,
                                             .top_k = top_k,
                                             .choices = o.in<std::int32_t>(3),
                                             .probabilities = o.in<float>(4),
                                             .loss = o.out<float>(0)});
  return ready(kernels::IndexerLossBackward{.indexer = indexer,
                                            .top_k = top_k,
                                            .choices = o.in<std::int32_t>(3),
                                            .probabilities = o.in<float>(4),
                                            .scale = gradient_scale_,
                                            .dq = o.out(0),
                                            .dq_stride = indexer.q_stride,
                                            .dk = o.out(1),
                                            .dk_stride = indexer.k_stride,
                                            .dweights = o.out(2),
                                            .dweights_stride = indexer.weights_stride});
}

std::function<void()> OperatorBinder::Body::bind_sparse_attention(const Operands& o) {
  const models::OpAttributes& a = o.work.attributes;
  const kernels::AttentionShape shape = attention_shape(o);
  const HeadsSideBySide at(a, size_of(o.dtype()));
  auto* qkv = o.in<std::byte>(o.forward() ? 0 : 1);
  if (o.forward())
    return ready(kernels::SparseAttentionForward{.shape = shape,
                                                 .dtype = o.dtype(),
                                                 .q = qkv,
                                                 .q_stride = at.stride,
                                                 .k = qkv + at.keys,
                                                 .v = qkv + at.values,
                                                 .kv_stride = at.stride,
                                                 .top_k = a.selected_keys,
                                                 .choices = o.in<std::int32_t>(1),
                                                 .o = o.out(0),
                                                 .o_stride = at.output_stride,
                                                 .lse = o.out<float>(1),
                                                 .probabilities = o.out<float>(2)});
  auto* gradient = o.out<std::byte>(0);
  return ready(kernels::SparseAttentionBackward{.shape = shape,
                                                .dtype = o.dtype(),
                                                .q = qkv,
                                                .q_stride = at.stride,
                                                .k = qkv + at.keys,
                                                .v = qkv + at.values,
                                                .kv_stride = at.stride,
                                                .top_k = a.selected_keys,
                                                .choices = o.in<std::int32_t>(4),
                                                .o = o.in(2),
                                                .o_stride = at.output_stride,
                                                .output_grad = o.in(0),
                                                .lse = o.in<float>(3),
                                                .dq = gradient,
                                                .dq_stride = at.stride,
                                                .dk = gradient + at.keys,
                                                .dv = gradient + at.values,
                                                .dkv_stride = at.stride});
}

}  // namespace meshplan::runtime
