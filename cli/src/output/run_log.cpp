#include "output/run_log.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "core/error.hpp"

namespace meshplan::cli {
namespace {

[[noreturn]] void fail(const std::string& path) {
  throw IoError(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

}  // namespace

RunLog::RunLog(std::string path, bool append) : path_(std::move(path)) {
  constexpr mode_t kMode = 0644;
  file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC),
               kMode);
  if (file_ < 0) fail(path_);
}

RunLog::~RunLog() {
  close(file_);
}

void RunLog::write(std::string_view line) {
  std::string text(line);
  text += '\n';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(file_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_);
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace meshplan::cli
