// Parameters and FLOPs, summed over the operations of a graph; there is no second formula.
#pragma once

#include <cstdint>

#include "core/units.hpp"
#include "models/graph.hpp"

namespace meshplan::models {

struct ParameterCounts {
  std::int64_t total = 0;      // tied weights once, without multi-token prediction modules
  std::int64_t active = 0;     // of total, what one token uses: top_k of a layer's experts
  std::int64_t embedding = 0;  // of total, the tables of the embedding: tokens, positions, types
  std::int64_t mtp = 0;        // the modules' own parameters, not part of total
  std::int64_t vision = 0;     // of a tower beside the decoder, not part of total
  bool operator==(const ParameterCounts&) const = default;
};

ParameterCounts count_parameters(const ModelGraph& graph);

/// Elements of all parameters of one layer, local ones if its graph is sharded.
std::int64_t parameter_count(const LayerGraph& layer, const SymbolValues& values = {});

/// Which query-key pairs count as attention work.
enum class AttentionCount {
  CausalHalf,  // what the mask leaves: S/2 keys per query; W - W^2 / 2S in a window of W < S
  AllPairs,    // S keys per query, W in a window: the 12 L S D of PaLM, appendix B
};

/// Matrix work of one operation, forward. A matrix product of (m, k) by (k, n) is 2 m n k;
/// attention is 2 (E + Ev) per head and query-key pair. Normalizations, activations, softmax,
/// lookups and routing decisions count as zero: no peak that MFU divides by is a vector rate.
/// Linear attention counts the recurrent form, per value head and token 6 key_size * value_size
/// where the state is read before it is written (decayed read, rank-one update, query; Yang et al.
/// 2024, eq. 10), else 4, as a state-space model does (Dao & Gu 2024, section 6). An indexer counts
/// its scores of all keys, the attention behind it those that it chose. All sizes are those of
/// `layer`'s tensors, so the work of a sharded layer is the local one.
/// @param values   of one micro-batch
/// @param seq_len  keys that a query could see without a mask
Flops forward_flops(const Op& op, const LayerGraph& layer, const SymbolValues& values,
                    std::int64_t seq_len, AttentionCount count = AttentionCount::CausalHalf);

/// Forward plus backward without recompute: input and weight gradients cost one forward each.
Flops training_flops(const Op& op, const LayerGraph& layer, const SymbolValues& values,
                     std::int64_t seq_len, AttentionCount count = AttentionCount::CausalHalf);

Flops forward_flops(const LayerGraph& layer, const SymbolValues& values, std::int64_t seq_len,
                    AttentionCount count = AttentionCount::CausalHalf);

/// Forward of a vision tower for one image.
Flops image_flops(const VisionGraph& vision);

/// Numerator of MFU per token: 3 forwards of every layer, of the head and of any multi-token
/// prediction modules (each runs the output projection again), and of a vision tower for the images
/// of a sequence; every token meets top_k experts.
/// Source: Chowdhery et al. 2022 (PaLM), appendix B, with attention counted as `count` says.
Flops model_flops_per_token(const ModelGraph& graph, std::int64_t seq_len,
                            AttentionCount count = AttentionCount::CausalHalf);

}  // namespace meshplan::models
