// Attention to a few keys that an indexer chooses for each query (DeepSeek-AI 2025, DeepSeek-V3.2,
// section 2.1, "DeepSeek Sparse Attention"). Nothing of it was timed: products run at the rate of
// fused attention, which its authors' kernel reaches (FlashMLA's README: 640 TFLOP/s forward on
// Hopper).
#pragma once

#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// Causal; all heads of all sequences.
struct SparseAttentionWork {
  double batch = 0, seq = 0;
  double heads = 0, head = 0, value_head = 0;  // elements of a query's and key's, of a value's head
  double selected = 0;                         // keys of a query at most
  double index_heads = 0, index_head = 0;      // of the indexer, whose heads share one key
  bool backward = false;
  bool operator==(const SparseAttentionWork&) const = default;
};

/// Pairs of a query and a key of its own sequence, of one head: all before it, and the selected.
double causal_pairs(const SparseAttentionWork& work);
double selected_pairs(const SparseAttentionWork& work);

/// Of the products with selected keys: as attention_flops() counts them.
double sparse_attention_flops(const SparseAttentionWork& work);
/// Forward: scores of all causal pairs, 2 FLOPs a head and element. Backward: the indexer learns
/// from the selected keys alone, so their scores again and gradients of queries and keys, and the
/// attention's own scores, whose sum over heads it shall match.
double indexer_flops(const SparseAttentionWork& work);
/// Forward: a score in fp32 of each causal pair is written, read for a histogram and read again for
/// the selection, which writes an index of each selected pair. Backward reads the indices.
double selection_bytes(const SparseAttentionWork& work);

/// Seconds of all of these without launches: the indexer's products, the selection as a stream, and
/// attention. @param peak  FLOP/s of attention @param index_peak  FLOP/s of the indexer: FP8's,
/// where it computes in that
double sparse_attention_seconds(const SparseAttentionWork& work, double peak, double index_peak,
                                const Cluster& cluster);

}  // namespace meshplan::sim
