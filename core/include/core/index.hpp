#pragma once

#include <cstddef>

namespace meshplan {

/// An identifier, rank or stage as containers of the standard library want it. Ours are ints, so
/// that a difference of two may be negative.
constexpr std::size_t at(int id) {
  return static_cast<std::size_t>(id);
}

}  // namespace meshplan
