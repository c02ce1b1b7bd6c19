#include "sim/engine/memory_need.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace meshplan::sim {

std::string_view name_of(MemoryVerdict verdict) {
  switch (verdict) {
    case MemoryVerdict::Fits:
      return "fits";
    case MemoryVerdict::Tight:
      return "tight";
    case MemoryVerdict::DoesNotFit:
      return "does not fit";
  }
  throw InvariantError("unknown verdict on memory");
}

std::string key_of(MemoryVerdict verdict) {
  std::string key(name_of(verdict));
  std::ranges::replace(key, ' ', '_');
  return key;
}

}  // namespace meshplan::sim
