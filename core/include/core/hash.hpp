#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace meshplan {

/// 64-bit FNV-1a (Fowler, Noll, Vo): stable over machines; for identity, not for security.
std::uint64_t content_hash(std::span<const std::byte> data,
                           std::uint64_t seed = 0xcbf29ce484222325ULL);
std::uint64_t content_hash(std::string_view text);

/// Sixteen hexadecimal digits.
std::string hex(std::uint64_t hash);

}  // namespace meshplan
