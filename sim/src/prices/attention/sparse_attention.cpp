#include "prices/attention/sparse_attention.hpp"

#include <algorithm>

#include "prices/device_speeds.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

AttentionShape attended(const SparseAttentionWork& work) {
  return {.pairs = work.heads * selected_pairs(work),
          .head_sizes = work.head + work.value_head,
          .blocks = work.batch * work.seq,  // heads share a query's keys: a block holds them
          .backward = work.backward};
}

}  // namespace

double causal_pairs(const SparseAttentionWork& work) {
  return work.batch * work.seq * (work.seq + 1) / 2;
}

double selected_pairs(const SparseAttentionWork& work) {
  const double keys = std::min(work.selected, work.seq);
  return work.batch * (keys * (keys + 1) / 2 + (work.seq - keys) * keys);
}

double sparse_attention_flops(const SparseAttentionWork& work) {
  return attention_flops(attended(work));
}

double indexer_flops(const SparseAttentionWork& work) {
  const double pair = 2 * work.index_heads * work.index_head;
  if (!work.backward) return pair * causal_pairs(work);
  return (3 * pair + 2 * work.heads * work.head) * selected_pairs(work);
}

double selection_bytes(const SparseAttentionWork& work) {
  constexpr double kScore = 4, kIndex = 4, kPasses = 3;
  const double indices = kIndex * selected_pairs(work);
  return work.backward ? indices : kPasses * kScore * causal_pairs(work) + indices;
}

double sparse_attention_seconds(const SparseAttentionWork& work, double peak, double index_peak,
                                const Cluster& cluster) {
  const double rate = work.backward ? cluster.device.efficiency.attention_backward
                                    : cluster.device.efficiency.attention_forward;
  return attention_seconds(attended(work), peak, cluster) +
         indexer_flops(work) / (rate * index_peak) + stream_seconds(selection_bytes(work), cluster);
}

}  // namespace meshplan::sim
