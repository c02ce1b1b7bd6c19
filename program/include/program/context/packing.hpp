// Documents packed one after the other into sequences of equal length. Attention does not cross
// from one to another, positions start anew in each, and only tokens whose target is of the same
// document count in the loss.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace meshplan::program {

/// A document's place in its sequence, in tokens.
struct Document {
  std::int64_t begin = 0;
  std::int64_t length = 0;  // valid
  std::int64_t padded = 0;  // with what fills it up; the next one begins at begin + padded
  bool operator==(const Document&) const = default;
};

/// By cumulative lengths (what Transformer Engine calls cu_seqlens and cu_seqlens_padded): document
/// d is valid[d + 1] - valid[d] tokens long and begins at padded[d]. What a sequence has beyond the
/// last one belongs to none.
struct PackedSequence {
  std::vector<std::int64_t> valid = {0};
  std::vector<std::int64_t> padded = {0};

  int num_documents() const { return static_cast<int>(valid.size()) - 1; }
  Document document(int index) const;
  void append(std::int64_t length, std::int64_t with_padding);
  /// Tokens with a target: all of a document but its last.
  std::int64_t loss_tokens() const { return valid.back() - num_documents(); }
  bool operator==(const PackedSequence&) const = default;
};

/// What packs documents: each is as long as `lengths` says, and in the sequence filled up to a
/// multiple of `multiple` tokens.
struct Packing {
  std::vector<PackedSequence> sequences;
  std::vector<std::vector<std::int64_t>> documents;  // of each sequence: indexes into `lengths`
};

/// Best-fit decreasing: the longest first, each into the sequence that it fills up most (Ding et
/// al. 2024, "Fewer truncations improve language modeling"). The result depends on the lengths
/// alone. O(N log N).
/// @throws InvariantError for a length below 1 or beyond a sequence
Packing pack(std::span<const std::int64_t> lengths, std::int64_t seq_len, std::int64_t multiple);

/// Sequences as a data set whose documents are as long as `sample` says would fill them, all
/// lengths alike often: what the simulator prices. Empty = uniform in 1 .. seq_len. Longer
/// documents are cut into sequences. Some 16 sequences, or as many as one document fills, of which
/// 256 are enough.
std::vector<PackedSequence> expected_sequences(std::span<const std::int64_t> sample,
                                               std::int64_t seq_len, std::int64_t multiple);

}  // namespace meshplan::program
