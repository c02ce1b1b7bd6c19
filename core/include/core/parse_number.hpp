// Numbers in text that is not JSON: tables, attributes, options.
#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

namespace meshplan {

/// All of `text` as a finite number inside [low, high]; absent for anything else ("inf", "1e", "").
inline std::optional<double> parse_number(std::string_view text, double low, double high) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !(value >= low && value <= high)) return std::nullopt;
  return value;
}

/// All of `text` as an integer inside [low, high]; absent for anything else.
inline std::optional<int> parse_integer(std::string_view text, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || value < low || value > high) return std::nullopt;
  return value;
}

}  // namespace meshplan
