// SplitMix64 (Steele et al. 2014): the same numbers everywhere, whatever the standard library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace meshplan::testing {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }
  /// In [0, count), for count >= 1.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }
  bool one_in(std::size_t count) { return below(count) == 0; }
  template <class Container>
  auto& pick(Container& values) {
    return values[below(values.size())];
  }

 private:
  std::uint64_t state_;
};

}  // namespace meshplan::testing
