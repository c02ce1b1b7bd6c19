// One row of a table of published runs, by column name.
#pragma once

#include <fmt/format.h>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/line.hpp"
#include "core/parse_number.hpp"
#include "models/model_spec.hpp"

namespace meshplan::sim {

/// One row by column name. Errors name the column, the value and what was expected.
class PublishedCells {
 public:
  PublishedCells(const std::map<std::string, std::size_t>& columns,
                 const std::vector<std::string>& cells)
      : columns_(columns), cells_(cells) {}

  const std::string& text(const std::string& column) const {
    static const std::string kEmpty;
    const std::size_t index = columns_.at(column);
    if (index >= cells_.size()) return kEmpty;
    require_line(cells_[index], column, limits::kLineBytes);
    return cells_[index];
  }

  /// Of a column that a table may lack.
  const std::string& text_or_empty(const std::string& column) const {
    static const std::string kEmpty;
    return columns_.contains(column) ? text(column) : kEmpty;
  }

  bool has(const std::string& column) const { return !text(column).empty(); }

  int integer(const std::string& column, std::optional<int> fallback = std::nullopt) const {
    const std::string& value = text(column);
    if (value.empty() && fallback) return *fallback;
    constexpr int kMost = std::numeric_limits<int>::max();
    if (const auto number = parse_integer(value, 1, kMost)) return *number;
    throw ConfigError(
        fmt::format("{}: '{}' is not a whole number from 1 to {}", column, value, kMost));
  }

  std::optional<double> number(const std::string& column) const {
    const std::string& value = text(column);
    if (value.empty()) return std::nullopt;
    constexpr double kSmallest = 1e-12;
    if (const auto number = parse_number(value, kSmallest, limits::kSeconds)) return *number;
    throw ConfigError(fmt::format("{}: '{}' is not a positive number, at most {}", column, value,
                                  limits::kSeconds));
  }

 private:
  const std::map<std::string, std::size_t>& columns_;
  const std::vector<std::string>& cells_;
};

inline bool mentions(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

/// "512" after `key` in "MLA q_lora1536 kv_lora512; first layer dense".
std::optional<int> number_after(const std::string& text, const std::string& key);

/// The architecture of a row.
/// @throws ConfigError naming the column, the value and what was expected
models::ModelSpec published_model(const PublishedCells& row);

}  // namespace meshplan::sim
