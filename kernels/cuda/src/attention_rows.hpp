// cuDNN keeps one number for each (sequence, head, query), we for each (sequence, query, head).
#pragma once

#include "context.hpp"
#include "kernels/attention.hpp"

namespace meshplan::kernels::cuda {

/// (B, H, Q) -> (B Q, H)
void enqueue_rows_from_heads(const Context& context, const AttentionShape& shape, const float* from,
                             float* to);
/// (B Q, H) -> (B, H, Q)
void enqueue_heads_from_rows(const Context& context, const AttentionShape& shape, const float* from,
                             float* to);

}  // namespace meshplan::kernels::cuda
