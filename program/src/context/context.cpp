#include "program/context/context.hpp"

#include <numeric>

#include "core/error.hpp"

namespace meshplan::program {
namespace {

/// Ranks of a sequence's chunks lie symmetrically around its middle.
constexpr int kChunksPerRank = 2;

}  // namespace

ContextShard context_shard(std::int64_t seq_len, int cp, int rank) {
  if (cp == 1) return {.length = seq_len, .first = 0, .second = seq_len / kChunksPerRank};
  const std::int64_t chunks = sequence_multiple({.cp = cp});
  require_invariant(seq_len % chunks == 0, "a sequence in chunks of unequal length");
  const std::int64_t chunk = seq_len / chunks;
  return {.length = kChunksPerRank * chunk,
          .first = rank * chunk,
          .second = (chunks - 1 - rank) * chunk};
}

std::vector<AttentionTile> gathered_tiles(std::int64_t seq_len, int cp, int rank) {
  const ContextShard own = context_shard(seq_len, cp, rank);
  const std::int64_t chunk = own.length / kChunksPerRank;
  const auto tile = [&](std::int64_t query_begin, std::int64_t position) {
    return AttentionTile{.query_begin = query_begin,
                         .num_queries = chunk,
                         .num_keys = position + chunk,
                         .query_offset = position};
  };
  return {tile(0, own.first), tile(chunk, own.second)};
}

AttentionTile ring_tile(std::int64_t seq_len, int cp, int rank, int step) {
  const std::int64_t length = context_shard(seq_len, cp, rank).length;
  const std::int64_t chunk = length / kChunksPerRank;
  // Own tokens in order of position: the mask is that of a short sequence.
  if (step == 0) return {.num_queries = length, .num_keys = length};
  const bool from_earlier = step <= rank;
  if (from_earlier)  // the source's second chunk is after all that this rank has
    return {.num_queries = length, .num_keys = chunk, .causal = false};
  return {.query_begin = chunk, .num_queries = length - chunk, .num_keys = length, .causal = false};
}

std::int64_t sequence_multiple(const ParallelConfig& parallel, TokenGranularity granularity,
                               int micro_batch_size) {
  const std::int64_t chunks = parallel.cp > 1 ? kChunksPerRank * parallel.cp : 1;
  const std::int64_t of_microbatch =
      static_cast<std::int64_t>(granularity) * (parallel.sp ? parallel.tp : 1);
  const std::int64_t of_rank =
      of_microbatch / std::gcd(of_microbatch, std::int64_t{micro_batch_size});
  return std::lcm(chunks, parallel.cp * of_rank);
}

std::int64_t padded_sequence(std::int64_t seq_len, const ParallelConfig& parallel,
                             TokenGranularity granularity, int micro_batch_size) {
  const std::int64_t multiple = sequence_multiple(parallel, granularity, micro_batch_size);
  return (seq_len + multiple - 1) / multiple * multiple;
}

}  // namespace meshplan::program
