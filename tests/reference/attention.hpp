#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention/attention.hpp"
#include "reference/matrix.hpp"

namespace meshplan::reference {

/// q (B Q, H E), k (B S, K E), v (B S, K Ev); `key_lengths` empty = all keys are real;
/// `key_ranges` (B Q, 2) empty = the shape says what is seen; `sinks` (1, H) empty = none.
struct AttentionInput {
  kernels::AttentionShape shape;
  Matrix q, k, v;
  std::vector<std::int32_t> key_lengths = {};
  std::vector<std::int32_t> key_ranges = {};
  Matrix sinks = Matrix(0, 0);
};
struct AttentionOutput {
  Matrix o;    // (B Q, H Ev)
  Matrix lse;  // (B Q, H)
};
struct AttentionGrads {
  Matrix dq, dk, dv;
  Matrix dsinks;  // (1, H), of zeros without sinks
};

/// Both counted inside the sequence.
bool is_visible(const AttentionInput& input, std::int64_t sequence, std::int64_t query,
                std::int64_t key);

AttentionOutput attention(const AttentionInput& input);

/// Through the explicit matrix of probabilities P: dv = P^T do, dP = do v^T,
/// dS = P (dP - rowsum(P dP)), with a soft cap times its slope, dq = scale dS k, dk = scale dS^T q;
/// a sink is one more column of P whose dP is 0.
AttentionGrads attention_backward(const AttentionInput& input, const Matrix& output_grad);

}  // namespace meshplan::reference
