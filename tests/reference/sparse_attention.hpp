#pragma once

#include <cstdint>
#include <vector>

#include "reference/attention.hpp"
#include "reference/matrix.hpp"

namespace meshplan::reference {

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

}  // namespace meshplan::reference
