#include "process/files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <memory>
#include <mutex>
#include <unistd.h>
#include <vector>

#include "core/checkpoint_files.hpp"
#include "core/error.hpp"
#include "core/input_file.hpp"
#include "core/paths.hpp"

namespace meshplan::cli {
namespace {

constexpr std::size_t kMostNearNames = 3;

// A signal handler can reach nothing but statics: the path of the file being written, and whether
// it is to be removed.
std::array<char, 4096> unfinished_path{};
volatile std::sig_atomic_t has_unfinished_file = 0;

[[noreturn]] void fail_to_write(const std::string& path, std::string_view why) {
  throw IoError(fmt::format("{}: cannot be written: {}", path, why));
}

/// Something that cannot be replaced by a file: a device, a pipe.
bool is_special(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
         !std::filesystem::is_directory(status);
}

void require_writable(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) throw IoError("an empty path cannot be written");
  if (is_folder(path)) fail_to_write(path, "it is a folder, not a file");
  if (const std::string checkpoint = checkpoint_around(path); !checkpoint.empty())
    fail_to_write(path, fmt::format("{} is a checkpoint, which a run alone writes to; name a file "
                                    "elsewhere",
                                    checkpoint));
  if (is_special(path)) {
    if (access(path.c_str(), W_OK) != 0) fail_to_write(path, std::strerror(errno));
    return;
  }
  const fs::path parent = fs::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (!is_there(folder)) fail_to_write(path, fmt::format("there is no folder {}", folder));
  if (!is_folder(folder)) fail_to_write(path, fmt::format("{} is not a folder", folder));
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    fail_to_write(path, fmt::format("folder {}: {}", folder, std::strerror(errno)));
}

void require_there(const std::string& path) {
  if (!is_there(path)) throw ConfigError(fmt::format("{}: no such file{}", path, near_names(path)));
}

void write_special(const std::string& path, std::string_view text) {
  const int out = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (out < 0 && errno == ENXIO) fail_to_write(path, "it is a FIFO (named pipe) that nobody reads");
  if (out < 0) fail_to_write(path, std::strerror(errno));
  ::fcntl(out, F_SETFL, 0);  // who reads it may take time
  int error = 0;
  while (!text.empty() && error == 0) {
    const ssize_t count = ::write(out, text.data(), text.size());
    if (count >= 0)
      text.remove_prefix(static_cast<std::size_t>(count));
    else if (errno != EINTR)
      error = errno;
  }
  ::close(out);
  if (error != 0) fail_to_write(path, std::strerror(error));
}

}  // namespace

UnfinishedFile::UnfinishedFile(const std::string& path) {
  if (path.size() >= unfinished_path.size())
    throw IoError(fmt::format("{}: the path is too long", path));
  std::error_code unreadable;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, unreadable)))
    fail_to_write(path, std::strerror(EEXIST));
  std::memcpy(unfinished_path.data(), path.c_str(), path.size() + 1);
  has_unfinished_file = 1;
}

UnfinishedFile::~UnfinishedFile() {
  remove_unfinished_file();
}

void UnfinishedFile::finished() {
  has_unfinished_file = 0;
}

void require_writable(std::initializer_list<std::optional<std::string>> paths) {
  for (const auto& path : paths)
    if (path) require_writable(*path);
}

void remove_unfinished_file() noexcept {
  if (has_unfinished_file == 0) return;
  unlink(unfinished_path.data());
  has_unfinished_file = 0;
}

std::string near_names(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path wanted(path);
  const fs::path folder = wanted.has_parent_path() ? wanted.parent_path() : fs::path(".");
  std::error_code ignored;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.is_regular_file(ignored) && entry.path().extension() == ".json" &&
        entry.path().native().find('\n') == std::string::npos)  // a message is one line
      names.push_back(entry.path().filename().string());
  std::vector<std::string> nearest;
  while (!names.empty() && nearest.size() < kMostNearNames) {
    std::ranges::sort(names);
    nearest.push_back(nearest_choice(wanted.filename().string(), names));
    std::erase(names, nearest.back());
  }
  return nearest.empty() ? "" : fmt::format("; near it: {}", fmt::join(nearest, ", "));
}

bool path_exists(const std::string& path) {
  return is_there(path);
}

bool folder_exists(const std::string& path) {
  return is_folder(path);
}

std::string read_file(const std::string& path, std::size_t most_bytes) {
  require_there(path);
  static std::mutex mutex;
  static std::map<std::string, std::string> pipes;  // what has been read cannot be read again
  const std::lock_guard lock(mutex);
  if (const auto known = pipes.find(path); known != pipes.end()) return known->second;
  InputFile file(path, Readable::FilesAndPipes);
  std::string text = file.read_all(most_bytes);
  if (file.is_pipe()) pipes[path] = text;
  return text;
}

TextBlocks file_blocks(const std::string& path, std::size_t most_bytes) {
  require_there(path);
  std::error_code ignored;
  if (std::filesystem::is_fifo(path, ignored)) {
    const auto text = std::make_shared<const std::string>(read_file(path));
    return [text, blocks = one_block(*text)] { return blocks(); };
  }
  struct Reading {
    Reading(const std::string& path, std::size_t most_bytes) : file(path), left(most_bytes) {}
    InputFile file;
    std::size_t left;
    std::array<char, std::size_t{1} << 16> block{};
  };
  const auto reading = std::make_shared<Reading>(path, most_bytes);
  return [reading, path, most_bytes] {
    const std::size_t count = reading->file.read(reading->block);
    if (count > reading->left)
      throw ConfigError(fmt::format("{}: holds more than {} bytes, the limit", path, most_bytes));
    reading->left -= count;
    return std::string_view(reading->block.data(), count);
  };
}

void write_file(const std::string& path, std::string_view text) {
  require_writable(path);
  if (is_special(path)) return write_special(path, text);
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  const UnfinishedFile guard(temporary);
  std::FILE* out = std::fopen(temporary.c_str(), "wbx");
  if (out == nullptr) fail_to_write(path, std::strerror(errno));
  const bool written = std::fwrite(text.data(), 1, text.size(), out) == text.size();
  const bool flushed = std::fflush(out) == 0 && fsync(fileno(out)) == 0;
  const int error = errno;
  if (std::fclose(out) != 0 || !written || !flushed) fail_to_write(path, std::strerror(error));
  if (std::rename(temporary.c_str(), path.c_str()) != 0)
    throw IoError(fmt::format("{}: cannot be replaced: {}", path, std::strerror(errno)));
  UnfinishedFile::finished();
}

}  // namespace meshplan::cli
