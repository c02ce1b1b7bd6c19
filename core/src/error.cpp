#include "core/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

#include "core/line.hpp"

namespace meshplan {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substitute, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

InvariantError::InvariantError(const std::string& what, const char* file, int line)
    : std::logic_error(fmt::format("internal error: {} ({}:{})", what, file, line)) {}

void require_invariant(bool condition, std::string_view what, const char* file, int line) {
  if (!condition) throw InvariantError(std::string(what), file, line);
}

std::string nearest_choice(std::string_view given, std::span<const std::string> choices) {
  const auto best = std::ranges::min_element(
      choices, {}, [&](const std::string& choice) { return edit_distance(given, choice); });
  return best == choices.end() ? std::string() : *best;
}

std::string unknown_name_message(std::string_view kind, std::string_view given,
                                 std::vector<std::string> choices) {
  std::ranges::sort(choices);
  return fmt::format("unknown {} '{}'; did you mean '{}'? known: {}", kind, short_line(given),
                     nearest_choice(given, choices), fmt::join(choices, ", "));
}

int nearest_divisor(int number, int wanted) {
  int best = 1;
  const auto consider = [&](int divisor) {
    const int gain = std::abs(best - wanted) - std::abs(divisor - wanted);
    if (gain > 0 || (gain == 0 && divisor < best)) best = divisor;
  };
  for (int divisor = 1; divisor <= number / divisor; ++divisor)
    if (number % divisor == 0) {
      consider(divisor);
      consider(number / divisor);
    }
  return best;
}

}  // namespace meshplan
