#include "output/run_log.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.hpp"

namespace meshplan::cli {
namespace {

[[noreturn]] void fail(const std::string& path, std::string_view why) {
  throw IoError(fmt::format("{}: cannot be written: {}", path, why));
}

/// /dev/stdout and the like: links that the system makes, to what somebody else has opened.
bool is_of_system(const std::string& path) {
  return path.starts_with("/dev/") || path.starts_with("/proc/");
}

/// Other links are not followed: whoever can write in the log's folder could have any file of the
/// user's emptied.
int open_log(const std::string& path, int flags) {
  constexpr mode_t kMode = 0644;
  // Without a reader a FIFO would hold up the run for ever; O_NONBLOCK is nothing to a file.
  const int file = ::open(path.c_str(),
                          O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags |
                              (is_of_system(path) ? 0 : O_NOFOLLOW),
                          kMode);
  if (file < 0 && errno == ELOOP) {
    std::error_code unreadable;
    throw ConfigError(
        fmt::format("{}: a log is not written through a link; name the file itself: {}", path,
                    std::filesystem::read_symlink(path, unreadable).string()));
  }
  if (file < 0 && errno == ENXIO) fail(path, "it is a FIFO (named pipe) that nobody reads");
  if (file < 0) fail(path, std::strerror(errno));
  ::fcntl(file, F_SETFL, O_APPEND);  // whoever reads a pipe may take time
  return file;
}

bool is_file(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

RunLog::RunLog(std::string path, int file) : path_(std::move(path)), file_(file) {}

RunLog::RunLog(const std::string& path, bool append) : RunLog(path, open_log(path, O_CREAT)) {
  if (!is_file(file_) || is_of_system(path_)) return;
  // Held until the descriptor is closed, by whatever ends the run. Without support by the file
  // system there is no lock, and a log.
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw ConfigError(fmt::format("{}: another run writes this log; name another file", path_));
  if (!append && ::ftruncate(file_, 0) != 0) fail(path_, std::strerror(errno));
}

RunLog RunLog::beside_writer(const std::string& path) {
  return {path, open_log(path, O_CREAT)};
}

RunLog::~RunLog() {
  ::close(file_);
}

void RunLog::write(std::string_view line) {
  std::string text(line);
  text += '\n';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(file_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, std::strerror(errno));
    done += static_cast<std::size_t>(written);
  }
}

void require_free_log(const std::string& path) {
  if (is_of_system(path)) return;
  std::error_code unreadable;
  const auto there = std::filesystem::symlink_status(path, unreadable);
  // A reader of a FIFO would take the end of a look for the end of the log.
  if (std::filesystem::is_regular_file(there) || std::filesystem::is_symlink(there))
    const RunLog look(path, true);
}

}  // namespace meshplan::cli
