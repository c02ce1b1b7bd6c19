#include "output/output.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace meshplan::cli {

std::string flush_or_give_up_stdout() {
  errno = 0;
  const bool failed_before = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !failed_before) return {};
  std::string cause = errno != 0 ? std::strerror(errno) : "an error when it was written to";
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(null, STDOUT_FILENO);
  ::close(null);
  std::clearerr(stdout);
  return cause;
}

}  // namespace meshplan::cli
