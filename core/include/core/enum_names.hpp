// How enums are spelled in files and flags: one table each.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace meshplan {

/// Specialize with `static constexpr std::array<std::pair<E, std::string_view>, N> value`.
template <class E>
struct EnumNames;

template <class E>
concept NamedEnum = std::is_enum_v<E> && requires {
  EnumNames<E>::value;
};

template <NamedEnum E>
std::string_view name_of(E value) {
  for (const auto& [candidate, name] : EnumNames<E>::value)
    if (candidate == value) return name;
  throw InvariantError("enum value without a name");
}

template <NamedEnum E>
std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const auto& entry : EnumNames<E>::value) names.emplace_back(entry.second);
  return names;
}

template <NamedEnum E>
std::optional<E> from_name(std::string_view given) {
  for (const auto& [candidate, name] : EnumNames<E>::value)
    if (name == given) return candidate;
  return std::nullopt;
}

}  // namespace meshplan
