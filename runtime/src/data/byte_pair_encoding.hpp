// The merges of byte-pair encoding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace meshplan::runtime {

/// Merges neighbouring symbols, the pair of lowest rank first and the leftmost of equals (Sennrich
/// et al. 2016, algorithm 1 applied to one word). O(n log n).
class BytePairMerges {
 public:
  /// Merges are added in the order of their rank.
  void add(std::uint32_t left, std::uint32_t right, std::uint32_t merged);
  void apply(std::vector<std::uint32_t>& symbols) const;

 private:
  struct Merge {
    std::uint32_t rank = 0;
    std::uint32_t merged = 0;
  };
  const Merge* find(std::uint32_t left, std::uint32_t right) const;

  std::unordered_map<std::uint64_t, Merge> merges_;
};

}  // namespace meshplan::runtime
