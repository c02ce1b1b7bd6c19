#include "runs/kineto_texts.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "planner/runs/kineto_trace.hpp"

namespace meshplan::planner {
namespace {

constexpr std::size_t kNodeBytes = 64;  // of a set, beside its value; roughly

}  // namespace

std::string_view KinetoTexts::keep(std::string_view text) {
  const auto known = texts_.lower_bound(text);
  if (known != texts_.end() && *known == text) return *known;
  count(kNodeBytes + sizeof(std::string) + text.size());
  return *texts_.emplace_hint(known, text);
}

std::span<const std::vector<std::int64_t>> KinetoTexts::keep(Shapes shapes) {
  const auto [kept, is_new] = shapes_.insert(std::move(shapes));
  if (!is_new) return *kept;
  std::size_t bytes = kNodeBytes + sizeof(Shapes);
  for (const auto& shape : *kept)
    bytes += sizeof(Shapes::value_type) + kNodeBytes + shape.size() * sizeof(std::int64_t);
  count(bytes);
  return *kept;
}

void KinetoTexts::count(std::size_t bytes) {
  bytes_ += bytes;
  if (bytes_ > kMostTextsBytes)
    throw ConfigError(
        fmt::format("{}: traceEvents: different names and shapes of events take more than {} bytes "
                    "of memory, the limit; profile fewer steps",
                    file_, kMostTextsBytes));
}

}  // namespace meshplan::planner
