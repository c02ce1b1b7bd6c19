// Names and shapes of a trace, each held once: its events repeat them a million times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan::planner {

class KinetoTexts {
 public:
  using Shapes = std::vector<std::vector<std::int64_t>>;

  /// @param file  of the trace, for messages
  explicit KinetoTexts(std::string file) : file_(std::move(file)) {}

  /// Equal ones lie at one address. @throws ConfigError beyond kMostTextsBytes
  std::string_view keep(std::string_view text);
  std::span<const std::vector<std::int64_t>> keep(Shapes shapes);

 private:
  void count(std::size_t bytes);

  std::string file_;
  std::size_t bytes_ = 0;
  std::set<std::string, std::less<>> texts_;
  std::set<Shapes> shapes_;
};

}  // namespace meshplan::planner
