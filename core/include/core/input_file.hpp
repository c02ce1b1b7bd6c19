// Opening what a user named, without ever waiting for it. In a header, as paths.hpp: what includes
// it has files, and a page has none.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <span>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "core/error.hpp"

namespace meshplan {

/// What may be read: files whose size is known, or pipes as well (`<(jq ...)`, /dev/stdin).
enum class Readable { Files, FilesAndPipes };

/// How long a pipe may be silent, and how long nobody may have opened it to write.
struct PipeTimes {
  std::chrono::milliseconds silent{60000};
  std::chrono::milliseconds without_writer{300};
};

/// A file, opened to be read: a FIFO does not block, and devices, sockets and folders are refused.
/// The kind is that of what was opened, so nothing can be put in its place.
class InputFile {
 public:
  /// @throws ConfigError if there is none, or it is none that can be read; IoError if it may not be
  explicit InputFile(const std::string& path, Readable readable = Readable::Files,
                     PipeTimes times = {})
      : path_(path),
        times_(times),
        descriptor_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
    if (descriptor_ < 0) fail_to_open(errno);
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0) info = {};
    is_pipe_ = S_ISFIFO(info.st_mode);
    if (S_ISREG(info.st_mode) || (is_pipe_ && readable == Readable::FilesAndPipes)) {
      bytes_ = is_pipe_ ? 0 : info.st_size;
      return;
    }
    ::close(descriptor_);
    fail_kind(info.st_mode);
  }
  ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int descriptor() const { return descriptor_; }
  bool is_pipe() const { return is_pipe_; }
  /// Size of a file when it was opened, as the file system says: 0 of a pipe, and of files of
  /// /proc.
  std::int64_t bytes() const { return bytes_; }

  /// Fills `out` as far as there is something; 0 at the end.
  /// @throws ConfigError for a pipe that nobody writes to, or nothing comes through; IoError
  std::size_t read(std::span<char> out) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds kPause{10};
    const auto begin = Clock::now();
    while (true) {
      const ssize_t count = ::read(descriptor_, out.data(), out.size());
      if (count > 0) {
        has_content_ = true;
        return static_cast<std::size_t>(count);
      }
      if (count == 0 && (!is_pipe_ || has_content_)) return 0;
      if (count == 0) {  // its writer is still to start, or there will be none
        if (Clock::now() - begin > times_.without_writer)
          throw ConfigError(fmt::format(
              "{}: is a FIFO (named pipe) that nobody writes to, expected a regular file", path_));
        std::this_thread::sleep_for(kPause);
      } else if (errno == EAGAIN) {
        wait();
      } else if (errno != EINTR) {
        throw IoError(fmt::format("{}: cannot be read: {}", path_, std::strerror(errno)));
      }
    }
  }

  /// All that is left of it. @throws as read, and ConfigError if it is more than `most_bytes`
  std::string read_all(std::size_t most_bytes) {
    constexpr std::size_t kBlock = std::size_t{1} << 16;
    std::string text;
    const auto known = static_cast<std::size_t>(bytes_);
    if (known > most_bytes) fail_size(known, most_bytes);
    text.reserve(known + 1);
    while (true) {
      const std::size_t before = text.size();
      // A file that is what its size says is read in one piece.
      const std::size_t room = before <= known ? std::max(known - before, std::size_t{1}) : kBlock;
      text.resize(before + room);
      const std::size_t count = read({text.data() + before, room});
      text.resize(before + count);
      if (count == 0) return text;
      if (text.size() > most_bytes) fail_size(text.size(), most_bytes);
    }
  }

 private:
  void wait() {
    pollfd change{.fd = descriptor_, .events = POLLIN, .revents = 0};
    const int changed = ::poll(&change, 1, static_cast<int>(times_.silent.count()));
    if (changed == 0)
      throw ConfigError(fmt::format("{}: nothing came through the pipe for {} s", path_,
                                    std::chrono::duration<double>(times_.silent).count()));
  }

  [[noreturn]] void fail_to_open(int error) const {
    struct stat info {};
    if (error == ENOENT || error == ENOTDIR)
      throw ConfigError(fmt::format("{}: no such file", path_));
    if (::stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && error != EACCES)
      fail_kind(info.st_mode);
    throw IoError(fmt::format("{}: cannot be read: {}", path_, std::strerror(error)));
  }

  [[noreturn]] void fail_kind(mode_t mode) const {
    if (S_ISDIR(mode)) throw ConfigError(fmt::format("{}: is a folder, not a file", path_));
    const char* kind = S_ISFIFO(mode)   ? "a FIFO (named pipe)"
                       : S_ISSOCK(mode) ? "a socket"
                       : S_ISCHR(mode)  ? "a device"
                       : S_ISBLK(mode)  ? "a block device"
                                        : "something else";
    throw ConfigError(fmt::format("{}: is {}, expected a regular file", path_, kind));
  }

  [[noreturn]] void fail_size(std::size_t bytes, std::size_t most_bytes) const {
    throw ConfigError(fmt::format("{}: holds {} bytes{}, more than the limit of {}", path_, bytes,
                                  is_pipe_ ? " or more" : "", most_bytes));
  }

  std::string path_;
  PipeTimes times_;
  int descriptor_ = -1;
  bool is_pipe_ = false;
  bool has_content_ = false;
  std::int64_t bytes_ = 0;
};

}  // namespace meshplan
