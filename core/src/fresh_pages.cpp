#include "core/fresh_pages.hpp"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace meshplan {

bool map_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef MADV_POPULATE_WRITE  // Linux 5.14. (MAP_POPULATE maps shared pages for reading only.)
  constexpr std::size_t kLarge = std::size_t{32} << 20;  // less gains little from large pages
  if (bytes >= kLarge) ::madvise(memory, bytes, MADV_HUGEPAGE);
  return ::madvise(memory, bytes, MADV_POPULATE_WRITE) == 0;
#else
  return false;
#endif
}

}  // namespace meshplan
