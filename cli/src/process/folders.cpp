#include "process/folders.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.hpp"
#include "core/paths.hpp"

namespace meshplan::cli {
namespace {

namespace fs = std::filesystem;

// A signal handler can reach nothing but statics: the folder and the files made in it so far.
using PathText = std::array<char, 4096>;
PathText unfinished_folder{};
std::array<PathText, 32> unfinished_files{};
volatile std::sig_atomic_t num_unfinished_files = 0;
volatile std::sig_atomic_t has_unfinished_folder = 0;

void remember_path(PathText& place, const std::string& path) {
  if (path.size() >= place.size()) throw IoError(fmt::format("{}: the path is too long", path));
  std::memcpy(place.data(), path.c_str(), path.size() + 1);
}

class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(const std::string& path) {
    remember_path(unfinished_folder, path);
    num_unfinished_files = 0;
    has_unfinished_folder = 1;
  }
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;
  ~UnfinishedFolder() { remove_unfinished_folder(); }

  static void add_file(const std::string& path) {
    const auto index = static_cast<std::size_t>(num_unfinished_files);
    require_invariant(index < unfinished_files.size(), "a folder has few files");
    remember_path(unfinished_files[index], path);
    num_unfinished_files = num_unfinished_files + 1;
  }
  static void finished() { has_unfinished_folder = 0; }
};

[[noreturn]] void fail_to_make(const std::string& path, int error) {
  throw IoError(fmt::format("{}: cannot be written: {}", path, std::strerror(error)));
}

void write_new_file(const std::string& path, const FolderFile& file) {
  UnfinishedFolder::add_file(path);
  std::FILE* out = std::fopen(path.c_str(), "wbx");
  if (out == nullptr) fail_to_make(path, errno);
  const bool written = std::fwrite(file.text.data(), 1, file.text.size(), out) == file.text.size();
  const bool flushed = std::fflush(out) == 0 && fsync(fileno(out)) == 0;
  const int error = errno;
  if (std::fclose(out) != 0 || !written || !flushed) fail_to_make(path, error);
  if (file.executable && chmod(path.c_str(), 0755) != 0) fail_to_make(path, errno);
}

bool is_empty_folder(const fs::path& path) {
  std::error_code unreadable;
  return is_folder(path) && fs::is_empty(path, unreadable) && !unreadable;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

void require_free_folder(const std::string& given, bool replaces) {
  const std::string path = without_slash(given);
  if (path.empty()) throw IoError("an empty path cannot be written");
  if (is_there(path) && !is_folder(path))
    throw ConfigError(fmt::format("{}: is a file; name a folder", path));
  if (is_folder(path) && !is_empty_folder(path) && !replaces)
    throw ConfigError(fmt::format(
        "{}: holds files already; name another folder, or replace it with --force", path));
  const fs::path parent = fs::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (!is_folder(folder))
    throw IoError(fmt::format("{}: cannot be written: there is no folder {}", path, folder));
  if (access(folder.c_str(), W_OK | X_OK) != 0) fail_to_make(path, errno);
}

void write_folder(const std::string& given, const std::vector<FolderFile>& files, bool replaces) {
  const std::string path = without_slash(given);
  require_free_folder(path, replaces);
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  const UnfinishedFolder guard(temporary);
  if (mkdir(temporary.c_str(), 0755) != 0) fail_to_make(temporary, errno);
  for (const FolderFile& file : files) write_new_file(temporary + "/" + file.name, file);
  std::string aside;
  if (is_folder(path)) {
    // An empty folder is replaced by the rename itself.
    if (!is_empty_folder(path)) {
      aside = fmt::format("{}.{}.old", path, getpid());
      if (std::rename(path.c_str(), aside.c_str()) != 0) fail_to_make(path, errno);
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    if (!aside.empty()) std::rename(aside.c_str(), path.c_str());
    fail_to_make(path, error);
  }
  UnfinishedFolder::finished();
  std::error_code ignored;
  if (!aside.empty()) fs::remove_all(aside, ignored);
}

void remove_unfinished_folder() noexcept {
  if (has_unfinished_folder == 0) return;
  for (std::size_t i = 0; i < static_cast<std::size_t>(num_unfinished_files); ++i)
    unlink(unfinished_files[i].data());
  rmdir(unfinished_folder.data());
  has_unfinished_folder = 0;
}

}  // namespace meshplan::cli
