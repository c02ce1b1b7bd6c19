#include "process/kept_stderr.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sstream>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "core/error.hpp"
#include "process/files.hpp"

namespace meshplan::cli {

KeptStderr::KeptStderr(std::string file) : file_(std::move(file)) {
  std::fflush(stderr);
  const int target =
      ::open(file_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  before_ = target >= 0 ? ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0) : -1;
  const bool redirected = before_ >= 0 && ::dup2(target, STDERR_FILENO) >= 0;
  const int error = errno;
  if (target >= 0) ::close(target);
  if (redirected) return;
  if (before_ >= 0) ::close(before_);
  throw IoError(fmt::format("{}: cannot be written: {}", file_, std::strerror(error)));
}

KeptStderr::~KeptStderr() {
  std::fflush(stderr);
  ::dup2(before_, STDERR_FILENO);
  ::close(before_);
}

std::string KeptStderr::text() const {
  std::fflush(stderr);
  return read_file(file_);
}

std::string first_cause(const std::string& text) {
  constexpr std::string_view kPrefix = "meshplan: ";
  std::istringstream lines(text);
  std::string other;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("warning:") != std::string::npos || line.empty()) continue;
    if (line.starts_with(kPrefix)) return line.substr(kPrefix.size());
    if (other.empty()) other = line;
  }
  return other;
}

}  // namespace meshplan::cli
