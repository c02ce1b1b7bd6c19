#include "program/context/packing.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.hpp"

namespace meshplan::program {
namespace {

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

constexpr std::int64_t kExpectedSequences = 16;  // packed to price a data set
// Enough for one document: a longer one fills nearly every sequence, however long it is.
constexpr std::int64_t kMostSequences = 256;

}  // namespace

Document PackedSequence::document(int index) const {
  const auto i = at(index);
  return {
      .begin = padded[i], .length = valid[i + 1] - valid[i], .padded = padded[i + 1] - padded[i]};
}

void PackedSequence::append(std::int64_t length, std::int64_t with_padding) {
  valid.push_back(valid.back() + length);
  padded.push_back(padded.back() + with_padding);
}

Packing pack(std::span<const std::int64_t> lengths, std::int64_t seq_len, std::int64_t multiple) {
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](std::int64_t index) { return lengths[at(index)]; });
  Packing packing;
  std::multimap<std::int64_t, std::size_t> room;  // tokens left -> sequence
  for (const std::int64_t index : order) {
    const std::int64_t length = lengths[at(index)];
    require_invariant(length >= 1 && length <= seq_len, "a document that fits no sequence");
    // The end of a sequence cuts padding short.
    const std::int64_t padded = std::min((length + multiple - 1) / multiple * multiple, seq_len);
    auto best = room.lower_bound(padded);
    if (best == room.end()) {
      best = room.emplace(seq_len, packing.sequences.size());
      packing.sequences.emplace_back();
      packing.documents.emplace_back();
    }
    const auto [left, sequence] = *best;
    room.erase(best);
    packing.sequences[sequence].append(length, padded);
    packing.documents[sequence].push_back(index);
    if (left > padded) room.emplace(left - padded, sequence);
  }
  return packing;
}

std::vector<PackedSequence> expected_sequences(std::span<const std::int64_t> sample,
                                               std::int64_t seq_len, std::int64_t multiple) {
  std::vector<std::int64_t> sorted(sample.begin(), sample.end());
  for (std::int64_t& length : sorted) length = std::min(length, kMostSequences * seq_len);
  std::ranges::sort(sorted);
  const double mean = sorted.empty() ? static_cast<double>(seq_len + 1) / 2
                                     : std::accumulate(sorted.begin(), sorted.end(), 0.0) /
                                           static_cast<double>(sorted.size());
  const auto count = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(static_cast<double>(kExpectedSequences * seq_len) / mean));
  const std::int64_t choices = sample.empty() ? seq_len : std::ssize(sample);
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t quantile = (2 * i + 1) * choices / (2 * count);
    std::int64_t length = sample.empty() ? quantile + 1 : sorted[at(quantile)];
    for (; length > seq_len; length -= seq_len) lengths.push_back(seq_len);
    lengths.push_back(length);
  }
  return pack(lengths, seq_len, multiple).sequences;
}

}  // namespace meshplan::program
