#include "process/kept_output.hpp"

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
namespace {

void flush_streams() {
  std::fflush(stdout);
  std::fflush(stderr);
}

[[noreturn]] void fail_to_keep(const std::string& file) {
  throw IoError(fmt::format("{}: cannot be written: {}", file, std::strerror(errno)));
}

/// A stream that was closed before is closed again.
void put_back(int before, int descriptor) {
  if (before < 0) {
    ::close(descriptor);
    return;
  }
  ::dup2(before, descriptor);
  ::close(before);
}

}  // namespace

KeptOutput::KeptOutput(std::string file) : file_(std::move(file)) {
  flush_streams();
  const int target =
      ::open(file_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
  if (target < 0) fail_to_keep(file_);
  stdout_before_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
  stderr_before_ = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  ::dup2(target, STDOUT_FILENO);
  ::dup2(target, STDERR_FILENO);
  ::close(target);
}

KeptOutput::~KeptOutput() {
  flush_streams();
  put_back(stdout_before_, STDOUT_FILENO);
  put_back(stderr_before_, STDERR_FILENO);
}

std::string KeptOutput::text() const {
  flush_streams();
  return read_file(file_);
}

std::string first_cause(const std::string& text) {
  constexpr std::string_view kPrefix = "meshplan: ";
  std::istringstream lines(text);
  std::string other;
  for (std::string line; std::getline(lines, line);) {
    const bool is_frame = line.starts_with("=");  // of what mpiexec says at the end
    if (line.empty() || is_frame || line.find("warning:") != std::string::npos) continue;
    if (line.starts_with(kPrefix)) return line.substr(kPrefix.size());
    if (other.empty()) other = line;
  }
  return other;
}

}  // namespace meshplan::cli
