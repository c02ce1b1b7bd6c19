// Documents of a token file, packed into sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "program/context/packing.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::runtime {

class TokenFile;
struct TokenRange;

/// Where the documents of a part of a file lie, and which share a sequence. A document ends with
/// its end-of-document token (the last one may lack it); one that is longer than a sequence is cut
/// into documents of a sequence's length; one of a single token has nothing to learn and is left
/// out.
class DocumentIndex {
 public:
  /// Reads the file once.
  DocumentIndex(const TokenFile& file, TokenRange part, const program::Workload& workload);

  std::int64_t num_sequences() const { return static_cast<std::int64_t>(sequences_.size()); }
  const program::PackedSequence& sequence(std::int64_t index) const {
    return sequences_[static_cast<std::size_t>(index)];
  }
  /// The file's index of the first token of a document.
  std::int64_t first_token(std::int64_t sequence, int document) const;

 private:
  std::vector<program::PackedSequence> sequences_;
  std::vector<std::vector<std::int64_t>> documents_;  // of each sequence
  std::vector<std::int64_t> begins_;                  // tokens, by document
};

}  // namespace meshplan::runtime
