#include "os/written_pipe.hpp"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <thread>

namespace meshplan::runtime {

void wait_until_read(int descriptor, std::chrono::milliseconds most) {
  constexpr std::chrono::milliseconds kNap{1};
  struct stat kind = {};
  if (::fstat(descriptor, &kind) != 0 || !S_ISFIFO(kind.st_mode)) return;
  const auto until = std::chrono::steady_clock::now() + most;
  // Linux counts what is unread at either end.
  for (int unread = 0; ::ioctl(descriptor, FIONREAD, &unread) == 0 && unread > 0;) {
    if (std::chrono::steady_clock::now() > until) return;
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace meshplan::runtime
