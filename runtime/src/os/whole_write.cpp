#include "os/whole_write.hpp"

#include <cerrno>
#include <unistd.h>

namespace meshplan::runtime {

void write_whole(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const auto count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno != EINTR) return;
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace meshplan::runtime
