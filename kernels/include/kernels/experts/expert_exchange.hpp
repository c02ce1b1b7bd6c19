// What expert parallelism adds to expert_dispatch: rows that arrive from other ranks.
//
// P ranks of the expert-parallel group, X experts, L = X / P experts held by each rank, R rows in a
// buffer, D features. A rank sends its rows sorted by expert, so what arrives is sorted by (sending
// rank, local expert); grouped layers read rows sorted by (local expert, sending rank).
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// counts[x] = offsets[x + 1] - offsets[x]: what a rank tells the others before it sends rows.
struct ExpertCounts {
  int experts = 0;                        // X
  const std::int32_t* offsets = nullptr;  // (X + 1), of DispatchPlan
  std::int32_t* counts = nullptr;         // (X)
};

/// Sizes of the exchange: rows to and from every rank, and where each local expert's rows begin.
struct ExchangeSizes {
  int ranks = 0;                           // P
  int local_experts = 0;                   // L
  const std::int32_t* sent = nullptr;      // (P, L): rows of each expert that this rank sends
  const std::int32_t* received = nullptr;  // (P, L): rows that each rank sends for local experts
  std::int32_t* rows = nullptr;            // (2, P): rows sent to, then received from, each rank
  std::int32_t* offsets = nullptr;         // (L + 1): of the rows sorted by local expert
};

/// Reorders whole rows from (rank, expert) to (expert, rank), or back. Rows beyond the sum of
/// `received` are neither read nor written. Traffic: 2 D elements a row.
struct RegroupRows {
  int ranks = 0;
  int local_experts = 0;
  std::int64_t max_rows = 0;  // R
  std::int64_t size = 0;      // D
  DType dtype = DType::F32;
  bool to_experts = true;                  // false: back to (rank, expert)
  const std::int32_t* received = nullptr;  // (P, L), of ExchangeSizes
  const void* from = nullptr;              // (R, D), contiguous
  void* to = nullptr;                      // (R, D), contiguous; not `from`
};

// Exchanges by node: N nodes, of which each holds X / N neighbouring experts; a token has a *row*
// for each node that holds some of its K experts, M = min(K, N) at most.

/// The nodes of a token's experts, each once, in the order in which its choices first meet them,
/// then -1.
struct NodeChoices {
  std::int64_t tokens = 0;
  int experts = 0;
  int nodes = 0;
  int top_k = 0;
  const std::int32_t* choices = nullptr;  // (T, K), each in [0, X), or -1
  std::int32_t* node_choices = nullptr;   // (T, M)
};

/// What a node must know of a row: choices[r, k] and probabilities[r, k] of the row's token, the
/// expert counted from the node's first; -1 and 0 where the choice is another node's.
struct NodeRoutingForward {
  std::int64_t tokens = 0;
  int experts = 0;
  int nodes = 0;
  int top_k = 0;
  const std::int32_t* choices = nullptr;        // (T, K)
  const float* probabilities = nullptr;         // (T, K)
  const std::int32_t* node_choices = nullptr;   // (T, M)
  const std::int32_t* choice_of_row = nullptr;  // (T, M), of the plan of node_choices
  std::int32_t* row_choices = nullptr;          // (rows, K); those without a token are not written
  float* row_probabilities = nullptr;           // (rows, K)
};

/// dprobabilities[t, k] = drow_probabilities[r, k] of the row of the choice's node; 0 without one.
struct NodeRoutingBackward {
  std::int64_t tokens = 0;
  int experts = 0;
  int nodes = 0;
  int top_k = 0;
  const std::int32_t* choices = nullptr;        // (T, K)
  const std::int32_t* node_choices = nullptr;   // (T, M)
  const std::int32_t* row_of_choice = nullptr;  // (T, M), of the plan of node_choices
  const float* drow_probabilities = nullptr;    // (rows, K)
  float* dprobabilities = nullptr;              // (T, K)
};

/// Rows to E4M3 with a scale for each block of 128 numbers, as DeepSeek-V3 dispatches them
/// (DeepSeek-AI 2024, section 3.3.3): scale = max |x| / 448 (1 where that is no normal number),
/// code = x / scale rounded to nearest even. A packed row is float8_row_words(size) words: scales,
/// codes. Traffic: x, and 33 bytes for each 32 numbers.
struct PackFloat8Rows {
  std::int64_t rows = 0;
  std::int64_t size = 0;      // D, a multiple of 4
  DType dtype = DType::BF16;  // of x
  const void* x = nullptr;    // (rows, D), contiguous
  float* packed = nullptr;    // (rows, words)
};

/// x = scale code, rounded to the type of x. Traffic as PackFloat8Rows.
struct UnpackFloat8Rows {
  std::int64_t rows = 0;
  std::int64_t size = 0;
  DType dtype = DType::BF16;
  const float* packed = nullptr;
  void* x = nullptr;
};

}  // namespace meshplan::kernels
