// Tile sizes of the attention kernels and what their scratch holds.
//
// Q queries, S keys of a sequence, E head size, Ev that of values.
#pragma once

#include <cstdint>

#include "device/padding.hpp"
#include "kernels/attention/attention.hpp"

namespace meshplan::kernels {

constexpr std::int64_t kQueryBlock = 32;
constexpr std::int64_t kKeyBlock = 64;

/// Offsets, in floats, of one thread's packed operands.
struct AttentionLayout {
  std::int64_t head = 0;        // E, padded
  std::int64_t value = 0;       // Ev, padded
  std::int64_t value_size = 0;  // Ev
  std::int64_t queries = 0;     // Q, padded to blocks
  std::int64_t keys = 0;        // S, padded to blocks
  // forward and backward
  std::int64_t keys_transposed = 0;  // (S / block, E, block)
  std::int64_t values = 0;           // forward: (S, Ev)
  std::int64_t query = 0;            // forward: one block (block, E); backward: (Q, E)
  std::int64_t scores = 0;           // (query block, key block)
  std::int64_t output = 0;           // forward: (query block, Ev)
  std::int64_t row_max = 0;          // forward: (query block)
  std::int64_t row_sum = 0;          // forward: (query block)
  // backward only
  std::int64_t values_transposed = 0;  // (S / block, Ev, block)
  std::int64_t key = 0;                // (S, E)
  std::int64_t key_grad = 0;           // (S, E)
  std::int64_t value_grad = 0;         // (S, Ev)
  std::int64_t output_grad = 0;        // (Q, Ev)
  std::int64_t query_grad = 0;         // (Q, E)
  std::int64_t score_grads = 0;        // (query block, key block)
  std::int64_t delta = 0;              // (Q): row sums of do * o
  std::int64_t size = 0;               // floats in all
};

AttentionLayout attention_forward_layout(const AttentionShape& shape);
AttentionLayout attention_backward_layout(const AttentionShape& shape);

}  // namespace meshplan::kernels
