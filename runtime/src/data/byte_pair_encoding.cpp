#include "data/byte_pair_encoding.hpp"

#include <queue>

namespace meshplan::runtime {
namespace {

std::uint64_t key_of(std::uint32_t left, std::uint32_t right) {
  return (std::uint64_t{left} << 32) | right;
}

/// A symbol in a list of those that are left.
struct Node {
  std::uint32_t symbol = 0;
  std::int64_t previous = -1;
  std::int64_t next = -1;
  bool alive = true;
};

/// A pair that could be merged when it was queued.
struct Candidate {
  std::uint32_t rank = 0;
  std::int64_t left = 0;
  std::uint64_t pair = 0;
  std::uint32_t merged = 0;
  bool operator<(const Candidate& other) const {  // std::priority_queue gives the largest
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

void BytePairMerges::add(std::uint32_t left, std::uint32_t right, std::uint32_t merged) {
  merges_.try_emplace(key_of(left, right),
                      Merge{static_cast<std::uint32_t>(merges_.size()), merged});
}

const BytePairMerges::Merge* BytePairMerges::find(std::uint32_t left, std::uint32_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairMerges::apply(std::vector<std::uint32_t>& symbols) const {
  if (symbols.size() < 2) return;
  std::vector<Node> nodes(symbols.size());
  const auto at = [&](std::int64_t i) -> Node& { return nodes[static_cast<std::size_t>(i)]; };
  const auto count = static_cast<std::int64_t>(symbols.size());
  for (std::int64_t i = 0; i < count; ++i)
    at(i) = {symbols[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, true};
  std::priority_queue<Candidate> queue;
  const auto offer = [&](std::int64_t left) {
    if (left < 0 || at(left).next < 0) return;
    const std::uint32_t a = at(left).symbol;
    const std::uint32_t b = at(at(left).next).symbol;
    if (const Merge* merge = find(a, b))
      queue.push({merge->rank, left, key_of(a, b), merge->merged});
  };
  for (std::int64_t i = 0; i + 1 < count; ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Node& left = at(best.left);
    const bool stale =
        !left.alive || left.next < 0 || key_of(left.symbol, at(left.next).symbol) != best.pair;
    if (stale) continue;
    Node& right = at(left.next);
    right.alive = false;
    left.symbol = best.merged;
    left.next = right.next;
    if (left.next >= 0) at(left.next).previous = best.left;
    offer(left.previous);
    offer(best.left);
  }
  symbols.clear();
  for (std::int64_t i = 0; i >= 0; i = at(i).next) symbols.push_back(at(i).symbol);
}

}  // namespace meshplan::runtime
