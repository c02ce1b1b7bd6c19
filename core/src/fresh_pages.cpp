#include "core/fresh_pages.hpp"

#include <cstring>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace meshplan {

void touch_pages(void* memory, std::size_t bytes) noexcept {
#ifdef MADV_POPULATE_WRITE  // Linux 5.14. (MAP_POPULATE maps shared pages for reading only.)
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // where they fit: threads may touch a part each
  ::madvise(memory, bytes, MADV_POPULATE_WRITE);
#endif
  std::memset(memory, 0, bytes);  // a virtual machine may have mapped them for itself alone
}

}  // namespace meshplan
