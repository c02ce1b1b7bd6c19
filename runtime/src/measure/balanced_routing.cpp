#include "measure/balanced_routing.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::runtime {

std::vector<std::int32_t> balanced_routing(std::string_view name, std::int64_t count,
                                           std::int64_t rows, int experts) {
  std::vector<std::int32_t> values;
  values.reserve(static_cast<std::size_t>(count));
  const auto fill = [&](auto value) {
    for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<std::int32_t>(value(i)));
  };
  const auto share = [](std::int64_t total, std::int64_t i, std::int64_t parts) {
    return total * (i + 1) / parts - total * i / parts;
  };
  if (name.ends_with("choices"))
    fill(
        [&](std::int64_t i) { return i % experts; });  // of a token: neighbours, so no expert twice
  else if (name.ends_with("row_of_choice") || name.ends_with("choice_of_row"))
    fill([](std::int64_t i) { return i; });
  else if (name.ends_with("_offsets"))
    fill([&](std::int64_t i) { return rows * i / (count - 1); });
  else if (name.ends_with("_counts"))
    fill([&](std::int64_t i) { return share(rows, i, count); });
  else if (name.ends_with("exchanged_rows"))  // sent to each rank, then received from each
    fill([&](std::int64_t i) { return share(rows, i % (count / 2), count / 2); });
  else
    throw InvariantError(fmt::format("no balanced contents for the int32 value '{}'", name));
  return values;
}

}  // namespace meshplan::runtime
