#pragma once

#include <cstdint>
#include <vector>

#include "reference/attention.hpp"
#include "reference/matrix.hpp"

namespace meshplan::reference {

/// q (B Q, Hi Di), k (B S, Di), weights (B Q, Hi); the shape's mask, or key_lengths and key_ranges.
struct IndexerInput {
  kernels::AttentionShape shape;
  Matrix q, k, weights;
  std::vector<std::int32_t> key_lengths = {};
  std::vector<std::int32_t> key_ranges = {};
};

/// (B Q, S): -infinity where a query does not see a key.
Matrix index_scores(const IndexerInput& input);

/// (B Q, C): of each row the positions of the largest scores above -infinity, of equal ones the
/// lower positions, ascending, then -1.
std::vector<std::int32_t> largest_keys(const Matrix& scores, int top_k);

/// Attention through the explicit softmax over the choices (B Q, C).
struct SparseAttentionOutput {
  AttentionOutput attention;
  Matrix probabilities;  // (B Q, C): summed over heads
};
SparseAttentionOutput sparse_attention(const AttentionInput& input,
                                       const std::vector<std::int32_t>& choices, int top_k);

/// Through the explicit probabilities, as attention_backward. No sinks.
AttentionGrads sparse_attention_backward(const AttentionInput& input,
                                         const std::vector<std::int32_t>& choices, int top_k,
                                         const Matrix& output_grad);

/// (B Q, 1): KL divergence of the index scores' softmax over the choices from the probabilities.
Matrix indexer_loss(const IndexerInput& input, const std::vector<std::int32_t>& choices, int top_k,
                    const Matrix& probabilities);

/// Gradients of `scale` times the sum of the losses.
struct IndexerGrads {
  Matrix dq, dk, dweights;
};
IndexerGrads indexer_loss_backward(const IndexerInput& input,
                                   const std::vector<std::int32_t>& choices, int top_k,
                                   const Matrix& probabilities, double scale);

}  // namespace meshplan::reference
