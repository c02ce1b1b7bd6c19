// Context parallelism: where the tokens of a sequence lie on the ranks of a cp group, and which
// queries meet which keys where.
//
// S tokens of a sequence, cut into 2 cp chunks of L = S / (2 cp). Rank r holds chunks r and
// 2 cp - 1 - r, in this order ("zig-zag"), so that under a causal mask every rank has as many pairs
// of query and key as any other (Zhu 2024, ring-flash-attention; Llama 3 report, section 3.3.2).
#pragma once

#include <cstdint>
#include <vector>

#include "program/plan/parallel_config.hpp"

namespace meshplan::program {

/// The tokens of a sequence that one rank holds.
struct ContextShard {
  std::int64_t length = 0;  // 2 L, or S without context parallelism
  std::int64_t first = 0;   // position of token 0
  std::int64_t second = 0;  // position of token L

  /// Position in the sequence of the rank's token `i`.
  std::int64_t position(std::int64_t i) const {
    const std::int64_t half = length / 2;
    return i < half ? first + i : second + i - half;
  }
  bool operator==(const ContextShard&) const = default;
};
ContextShard context_shard(std::int64_t seq_len, int cp, int rank);

/// Some queries of a rank against some keys, of one sequence. `query_offset` is the position of the
/// first query less that of the first key; without `causal` every query sees every key.
struct AttentionTile {
  std::int64_t query_begin = 0;  // among the rank's tokens of the sequence
  std::int64_t num_queries = 0;
  std::int64_t key_begin = 0;  // among the keys given
  std::int64_t num_keys = 0;
  bool causal = true;
  std::int64_t query_offset = 0;
  bool operator==(const AttentionTile&) const = default;
};

/// The tiles of a rank whose keys are those of the whole sequence, in order: one a chunk. The
/// second one sees all that the first one sees.
std::vector<AttentionTile> gathered_tiles(std::int64_t seq_len, int cp, int rank);

/// The tile of a step of the ring: the keys are those of rank (rank - step) mod cp. A causal mask
/// hides one chunk of queries or one of keys after step 0, and nothing of what is left.
AttentionTile ring_tile(std::int64_t seq_len, int cp, int rank, int step);

/// Tokens that quantized matrix products want in multiples: fp8 16, mxfp8 32 (NVIDIA Transformer
/// Engine, "FP8 autocast"), 1 for all other types.
enum class TokenGranularity : int { Any = 1, Fp8 = 16, Mxfp8 = 32 };

/// What a sequence's length must be a multiple of: 2 cp whole chunks; and of the tokens that a rank
/// then has of a micro-batch, whole multiples of the granularity, on every tp rank where sp cuts
/// them. Everything that asks what fits a plan's tokens asks here: rules, lowering, planner, sim.
std::int64_t sequence_multiple(const ParallelConfig& parallel,
                               TokenGranularity granularity = TokenGranularity::Any,
                               int micro_batch_size = 1);

/// The least multiple >= `seq_len`.
std::int64_t padded_sequence(std::int64_t seq_len, const ParallelConfig& parallel,
                             TokenGranularity granularity = TokenGranularity::Any,
                             int micro_batch_size = 1);

}  // namespace meshplan::program
