#include "runtime/data/document_index.hpp"

#include <algorithm>

#include "core/index.hpp"
#include "runtime/data/data.hpp"

namespace meshplan::runtime {

namespace {
constexpr std::int64_t kFewestTokens = 2;  // one to read and one to predict
}

DocumentIndex::DocumentIndex(const TokenFile& file, TokenRange part,
                             const program::Workload& workload) {
  std::vector<std::int64_t> lengths;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    for (; end - begin >= kFewestTokens; begin += workload.seq_len) {
      begins_.push_back(begin);
      lengths.push_back(std::min(end - begin, workload.seq_len));
    }
  };
  const std::int32_t last = workload.documents.end_of_document.value();
  std::int64_t begin = part.begin;
  for (std::int64_t i = part.begin; i < part.end; ++i) {
    if (file[i] != last) continue;
    add(begin, i + 1);
    begin = i + 1;
  }
  add(begin, part.end);
  program::Packing packing =
      program::pack(lengths, workload.seq_len, workload.documents.pad_multiple);
  sequences_ = std::move(packing.sequences);
  documents_ = std::move(packing.documents);
}

std::int64_t DocumentIndex::first_token(std::int64_t sequence, int document) const {
  const std::vector<std::int64_t>& documents = documents_[static_cast<std::size_t>(sequence)];
  return begins_[static_cast<std::size_t>(documents[at(document)])];
}

}  // namespace meshplan::runtime
