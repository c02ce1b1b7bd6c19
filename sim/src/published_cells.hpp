// One row of a table of published runs, by column name.
#pragma once

#include <charconv>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "models/model_spec.hpp"

namespace meshplan::sim {

/// One row by column name. Errors name the column, the value and what was expected.
class PublishedCells {
 public:
  PublishedCells(const std::map<std::string, std::size_t>& columns,
                 const std::vector<std::string>& cells)
      : columns_(columns), cells_(cells) {}

  const std::string& text(const std::string& column) const {
    static const std::string empty;
    const std::size_t index = columns_.at(column);
    return index < cells_.size() ? cells_[index] : empty;
  }

  bool has(const std::string& column) const { return !text(column).empty(); }

  int integer(const std::string& column, std::optional<int> fallback = std::nullopt) const {
    const std::string& value = text(column);
    if (value.empty() && fallback) return *fallback;
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < 1)
      throw ConfigError(fmt::format("{}: '{}' is not a positive whole number", column, value));
    return number;
  }

  std::optional<double> number(const std::string& column) const {
    const std::string& value = text(column);
    if (value.empty()) return std::nullopt;
    double parsed = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    if (error != std::errc() || end != value.data() + value.size() || !(parsed > 0))
      throw ConfigError(fmt::format("{}: '{}' is not a positive number", column, value));
    return parsed;
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
