#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace meshplan::sim {

/// What distinguishes cached values: numbers, put together again for every look-up.
class CacheKey {
 public:
  bool operator==(const CacheKey&) const = default;

  /// Overwrites it; its memory is used again. Lists and texts count with their lengths, so that
  /// different values never give the same numbers.
  template <class... Values>
  void set(const Values&... values) {
    numbers_.clear();
    (add(values), ...);
  }

  template <class Value>
  requires(std::integral<Value> || std::is_enum_v<Value>) void add(Value value) {
    numbers_.push_back(static_cast<std::int64_t>(value));
  }
  void add(double value) { numbers_.push_back(std::bit_cast<std::int64_t>(value)); }
  void add(const std::string& text);
  void add(const CacheKey& other) { add(other.numbers_); }
  template <class Value>
  void add(const std::optional<Value>& value) {
    add(value.has_value());
    if (value) add(*value);
  }
  template <class Value>
  void add(const std::vector<Value>& values) {
    add(values.size());
    if constexpr (std::is_same_v<Value, std::int64_t>)
      numbers_.insert(numbers_.end(), values.begin(), values.end());
    else
      for (const Value& value : values) add(value);
  }

  struct Hash {
    std::size_t operator()(const CacheKey& key) const;
  };

 private:
  std::vector<std::int64_t> numbers_;
};

}  // namespace meshplan::sim
