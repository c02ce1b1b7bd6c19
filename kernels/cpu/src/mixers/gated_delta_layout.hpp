// What the scratch of the gated delta rule holds.
//
// C tokens of a chunk, Ek and Ev elements of a key and value, R value heads of a key head.
#pragma once

#include <cstdint>

#include "device/padding.hpp"
#include "kernels/mixers/gated_delta.hpp"

namespace meshplan::kernels {

constexpr std::int64_t kDeltaBlock = kMaxLanes;  // rows of triangular products and solves

/// Offsets, in floats, of one thread's packed operands.
struct GatedDeltaLayout {
  std::int64_t rows = 0;   // C, padded
  std::int64_t key = 0;    // Ek, padded
  std::int64_t value = 0;  // Ev, padded
  std::int64_t group = 0;  // R
  // of a key head
  std::int64_t query = 0;            // (C, Ek), normalized and scaled
  std::int64_t keys = 0;             // (C, Ek), normalized
  std::int64_t keys_transposed = 0;  // (Ek, C)
  std::int64_t query_keys = 0;       // (C, C): q k^T
  std::int64_t key_keys = 0;         // (C, C): k k^T
  std::int64_t query_norms = 0;      // (C): what the elements of q were multiplied by
  std::int64_t key_norms = 0;        // (C)
  // of a value head
  std::int64_t beta = 0;        // (C)
  std::int64_t decay = 0;       // (C): g, the logarithm of a token's decay
  std::int64_t decay_high = 0;  // (C): sum of g from the chunk's begin, and what fp32 drops of it
  std::int64_t decay_low = 0;   // (C)
  std::int64_t from_begin = 0;  // (C): decay from the chunk's begin, 0 in other documents
  std::int64_t to_end = 0;      // (C): decay to the chunk's end, 0 in other documents
  std::int64_t decays = 0;      // (C, C): decay from column to row, 0 above the diagonal
  std::int64_t scores = 0;      // (C, C): decays q k^T
  std::int64_t solver = 0;      // (C, C): -L
  std::int64_t updates = 0;     // (C, Ev): u
  std::int64_t output = 0;      // (C, Ev): o; backward: do
  std::int64_t state = 0;       // forward: (R, Ek, Ev); backward: (Ek, Ev)
  // backward only
  std::int64_t products = 0;               // (C): r u
  std::int64_t query_grad = 0;             // (C, Ek)
  std::int64_t key_grad = 0;               // (C, Ek)
  std::int64_t part = 0;                   // (C, Ek): one head's part of either
  std::int64_t update_grads = 0;           // (C, Ev): of the right side of (I + L) u
  std::int64_t updates_transposed = 0;     // (Ev, C)
  std::int64_t score_grads = 0;            // (C, C)
  std::int64_t solver_grads = 0;           // (C, C)
  std::int64_t pairs = 0;                  // (C, C): of the logarithms of decays
  std::int64_t reads = 0;                  // (C): of that of a token's decay from the chunk's begin
  std::int64_t writes = 0;                 // (C): and to its end
  std::int64_t later = 0;                  // (C): sums of pairs
  std::int64_t decay_grads = 0;            // (C): of g
  std::int64_t state_transposed = 0;       // (Ev, Ek)
  std::int64_t state_grad = 0;             // (R, Ek, Ev)
  std::int64_t state_grad_transposed = 0;  // (Ev, Ek)
  std::int64_t size = 0;                   // floats in all
};

GatedDeltaLayout gated_delta_forward_layout(const GatedDeltaShape& shape);
GatedDeltaLayout gated_delta_backward_layout(const GatedDeltaShape& shape);

}  // namespace meshplan::kernels
