#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace meshplan::sim {

/// What distinguishes cached values: small numbers, put together again for every look-up.
class CacheKey {
 public:
  void clear() { numbers_.clear(); }
  void add(std::int64_t number) { numbers_.push_back(number); }
  template <class... Numbers>
  void add_all(Numbers... numbers) {
    (add(static_cast<std::int64_t>(numbers)), ...);
  }
  void add(const std::vector<int>& numbers) {
    add(static_cast<std::int64_t>(numbers.size()));
    numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
  }
  void add(std::string_view text) { numbers_.insert(numbers_.end(), text.begin(), text.end()); }
  bool operator==(const CacheKey&) const = default;

  struct Hash {
    std::size_t operator()(const CacheKey& key) const;
  };

 private:
  std::vector<std::int64_t> numbers_;
};

}  // namespace meshplan::sim
