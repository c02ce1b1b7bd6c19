#include "core/hash.hpp"

#include <fmt/format.h>

namespace meshplan {

std::uint64_t content_hash(std::span<const std::byte> data, std::uint64_t seed) {
  constexpr std::uint64_t kPrime = 0x100000001b3ULL;
  std::uint64_t hash = seed;
  for (const std::byte byte : data) hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * kPrime;
  return hash;
}

std::uint64_t content_hash(std::string_view text) {
  return content_hash(std::as_bytes(std::span(text.data(), text.size())));
}

std::string hex(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

}  // namespace meshplan
