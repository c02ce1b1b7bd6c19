#include "schedules/cache_key.hpp"

#include <algorithm>
#include <cstring>

namespace meshplan::sim {

void CacheKey::add(const std::string& text) {
  add(text.size());
  for (std::size_t begin = 0; begin < text.size(); begin += sizeof(std::int64_t)) {
    std::int64_t number = 0;
    std::memcpy(&number, text.data() + begin, std::min(sizeof number, text.size() - begin));
    numbers_.push_back(number);
  }
}

std::size_t CacheKey::Hash::operator()(const CacheKey& key) const {
  std::uint64_t hash = 0x9E3779B97F4A7C15ULL;  // the golden ratio's digits (Knuth, TAOCP 3, 6.4)
  for (const std::int64_t number : key.numbers_) {
    hash ^= static_cast<std::uint64_t>(number);
    hash *= 0xFF51AFD7ED558CCDULL;  // MurmurHash3's finalizer
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace meshplan::sim
