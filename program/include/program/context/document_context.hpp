// Context parallelism of packed documents: which tokens of a sequence lie on which rank of the cp
// group, and what a rank must know of its micro-batch because every sequence is packed otherwise.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/context/packing.hpp"
#include "program/plan/plan.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// Tokens [begin, end) of a sequence.
struct TokenRun {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const TokenRun&) const = default;
};

/// By cp rank: its runs, ascending, none over the border of two documents; seq_len / cp tokens of
/// every rank.
using DocumentShards = std::vector<std::vector<TokenRun>>;

/// Divides a sequence over cp ranks so that all have as many tokens, and about as many pairs of
/// query and key. A document is cut over g ranks into 2 g chunks, rank i gets chunks i and
/// 2 g - 1 - i (as context_shard() cuts a whole sequence). g is cp, or with `max_tokens_per_rank`
/// the least that leaves no rank more tokens of the document (hybrid: Ge et al. 2025, ByteScale);
/// the longest come first, each to the ranks with the fewest pairs so far (Graham 1969). Where the
/// room that is left does not fit equal shares, they are unequal, on more ranks if need be.
/// @param max_tokens_per_rank  0 = every document over all ranks
DocumentShards shard_documents(const PackedSequence& sequence, std::int64_t seq_len, int cp,
                               std::int64_t max_tokens_per_rank);

/// Numbers (int32) of a micro-batch in Region::Batch: of each array, 0 where the plan needs none.
struct BatchSizes {
  std::int64_t ids = 0;         // and as many targets; then those that each prediction module reads
  std::int64_t positions = 0;   // in their documents, by row
  std::int64_t key_ranges = 0;  // (ring steps or 1, query rows, 2): see AttentionShape
  std::int64_t order = 0;       // (2, rows of all ranks): row of each place, place of each row
  std::int64_t total() const { return 2 * ids + positions + key_ranges + order; }
};
BatchSizes batch_sizes(const Plan& plan);

/// Where these go, for one micro-batch.
struct DocumentArrays {
  std::span<std::int32_t> positions;
  std::span<std::int32_t> key_ranges;
  std::span<std::int32_t> order;
};

/// Fills them, and lists the rank's tokens.
/// @param sequences  of the micro-batch
/// @returns of each row of the rank its token's position in its sequence
std::vector<std::int64_t> fill_document_arrays(const Plan& plan, int cp_rank,
                                               std::span<const PackedSequence> sequences,
                                               DocumentArrays arrays);

/// All pairs that the plan's attentions ask for; empty without packed documents.
std::vector<DocumentPairs> expected_pairs(const Plan& plan);

}  // namespace meshplan::program
