// How threads divide a state-space mixer, and what its scratch holds.
//
// Q chunk size (at most the sequence), P head size, N state size: padded to whole vectors.
#pragma once

#include <cstdint>

#include "kernels/mixers/ssd.hpp"

namespace meshplan::kernels {

/// Heads of a group that share its scores, and that a thread takes together.
constexpr std::int64_t kSsdHeads = 8;
/// Source tokens whose weights lie in cache at once.
constexpr std::int64_t kSsdSources = 32;

/// Heads [first_head, first_head + num_heads) of one group and sequence.
struct SsdUnit {
  std::int64_t sequence = 0;
  std::int64_t group = 0;
  std::int64_t first_head = 0;
  std::int64_t num_heads = 0;
  std::int64_t part = 0;  // of the group's, which are as many in all groups
};

std::int64_t ssd_parts_per_group(const SsdShape& shape);
std::int64_t num_ssd_units(const SsdShape& shape);
SsdUnit ssd_unit(const SsdShape& shape, std::int64_t index);

/// Offsets, in floats, of one thread's operands.
struct SsdLayout {
  std::int64_t chunk = 0;  // Q, padded
  std::int64_t head = 0;   // P, padded
  std::int64_t state = 0;  // N, padded
  // of a group
  std::int64_t b = 0;             // (Q, N)
  std::int64_t c = 0;             // (Q, N)
  std::int64_t c_transposed = 0;  // (N, Q)
  std::int64_t scores = 0;        // (Q sources, Q targets): b c^T
  std::int64_t document_end = 0;  // (Q) int32
  // of a head
  std::int64_t step = 0;              // (Q)
  std::int64_t decay_high = 0;        // (Q)
  std::int64_t decay_low = 0;         // (Q)
  std::int64_t from_start = 0;        // (Q)
  std::int64_t to_end = 0;            // (Q)
  std::int64_t ahead = 0;             // (Q)
  std::int64_t weights = 0;           // (sources, Q); backward: twice
  std::int64_t x = 0;                 // (Q, P)
  std::int64_t y = 0;                 // (Q, P); backward: the gradient of x times its step
  std::int64_t h = 0;                 // (P, N)
  std::int64_t state_transposed = 0;  // (N, P)
  // backward only
  std::int64_t slope = 0;          // (Q)
  std::int64_t crossing = 0;       // (Q)
  std::int64_t decay_grad = 0;     // (Q)
  std::int64_t x_dot = 0;          // (Q)
  std::int64_t end_dot = 0;        // (Q)
  std::int64_t start_dot = 0;      // (Q)
  std::int64_t dy = 0;             // (Q, P)
  std::int64_t dy_transposed = 0;  // (P, Q)
  std::int64_t score_grads = 0;    // (Q sources, Q targets), summed over heads
  std::int64_t db = 0;             // (Q, N), summed over heads
  std::int64_t dc = 0;             // (Q, N), summed over heads
  std::int64_t dc_of_head = 0;     // (Q, N)
  std::int64_t state_grads = 0;    // (heads at once, P, N)
  std::int64_t size = 0;           // floats in all
};

SsdLayout ssd_forward_layout(const SsdShape& shape);
SsdLayout ssd_backward_layout(const SsdShape& shape);

constexpr std::int64_t kSsdHeadSums = 3;  // gradients of a_log, d and dt_bias

/// Sums that units leave for the end of a backward pass.
struct SsdSums {
  float* bc_grads = nullptr;   // (T, G, parts, 2, N)
  double* of_heads = nullptr;  // (B, H, kSsdHeadSums)
};

}  // namespace meshplan::kernels
