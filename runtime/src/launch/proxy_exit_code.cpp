#include "runtime/launch/proxy_exit_code.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launch/launcher_watch.hpp"

namespace meshplan::runtime {
namespace {

/// launcher_watch.hpp's name_of() allocates, which a signal handler must not.
bool is_child_of_proxy() {
  char path[32] = "/proc/";
  char digits[16];
  char* first = digits + sizeof digits;
  for (auto pid = static_cast<unsigned>(::getppid()); pid != 0; pid /= 10)
    *--first = static_cast<char>('0' + pid % 10);
  const auto length = static_cast<std::size_t>(digits + sizeof digits - first);
  std::memcpy(path + 6, first, length);
  std::memcpy(path + 6 + length, "/comm", 6);
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char name[32] = {};
  const ssize_t size = ::read(file, name, sizeof name - 1);
  ::close(file);
  // The kernel keeps 15 bytes of a name and adds a line's end.
  return size > 0 && std::strncmp(name, kProxyName, static_cast<std::size_t>(size) - 1) == 0;
}

bool is_collected(pid_t rank) {
  return ::kill(rank, 0) != 0 && errno == ESRCH;
}

[[noreturn]] void stay_until_collected(pid_t rank, int end_of_rank) {
  ::setsid();  // the proxy ends the rank's process group
  if (end_of_rank > STDERR_FILENO + 1) ::dup2(end_of_rank, STDERR_FILENO + 1);
  ::syscall(SYS_close_range, STDERR_FILENO + 2, ~0U, 0);
  constexpr int kEndMs = 60'000;
  pollfd ended{.fd = STDERR_FILENO + 1, .events = POLLIN, .revents = 0};
  while (::poll(&ended, 1, kEndMs) < 0 && errno == EINTR) continue;
  ::close(STDOUT_FILENO);
  constexpr timespec kNap{.tv_sec = 0, .tv_nsec = 1'000'000};
  for (int i = 0; i < 2'000 && !is_collected(rank); ++i) ::nanosleep(&kNap, nullptr);
  ::_exit(0);
}

}  // namespace

void let_proxy_see_exit_code() {
  if (!is_child_of_proxy()) return;
  const pid_t rank = ::getpid();
  const auto end_of_rank = static_cast<int>(::syscall(SYS_pidfd_open, rank, 0));
  if (end_of_rank < 0) return;  // a kernel before 5.3
  // fork() runs handlers of other libraries, which a signal handler must not.
  if (::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) stay_until_collected(rank, end_of_rank);
  ::close(end_of_rank);
}

}  // namespace meshplan::runtime
