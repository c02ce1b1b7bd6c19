#include "core/fresh_pages.hpp"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace meshplan {

bool map_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef MADV_POPULATE_WRITE  // Linux 5.14. (MAP_POPULATE maps shared pages for reading only.)
  constexpr std::size_t kMany = std::size_t{32} << 20;  // of less there may be much
  if (bytes >= kMany) ::madvise(memory, bytes, MADV_HUGEPAGE);
  return ::madvise(memory, bytes, MADV_POPULATE_WRITE) == 0;
#else
  return false;
#endif
}

}  // namespace meshplan
