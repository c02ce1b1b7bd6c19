#include "process/temporary_folder.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.hpp"

namespace meshplan::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "meshplan-scratch-";
constexpr const char* kLock = "lock";

// A signal handler can reach nothing but statics.
using Path = std::array<char, 4096>;
Path folder_path{};
std::array<Path, 16> file_paths{};
volatile std::sig_atomic_t num_files = 0;

void remember(Path& place, const std::string& path) {
  if (path.size() >= place.size()) throw IoError(fmt::format("{}: the path is too long", path));
  std::memcpy(place.data(), path.c_str(), path.size() + 1);
}

void remember_file(const std::string& path) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(num_files); ++i)
    if (path == file_paths[i].data()) return;
  if (static_cast<std::size_t>(num_files) == file_paths.size()) return;
  remember(file_paths[static_cast<std::size_t>(num_files)], path);
  num_files = num_files + 1;
}

/// Did this class make it for this user some time ago, and has the process that locked it ended?
bool is_left_behind(const fs::path& folder) {
  constexpr std::time_t kOldEnough = 60;  // seconds; younger ones may not be locked yet
  struct stat info {};
  const std::string lock = folder / kLock;
  if (::lstat(lock.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != ::geteuid() ||
      info.st_mtime > std::time(nullptr) - kOldEnough)
    return false;
  const int file = ::open(lock.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  const bool free = file >= 0 && ::flock(file, LOCK_EX | LOCK_NB) == 0;
  if (file >= 0) ::close(file);
  return free;
}

void remove_left_behind(const fs::path& place) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(place, ignored))
    if (entry.path().filename().string().starts_with(kPrefix) && is_left_behind(entry.path()))
      fs::remove_all(entry.path(), ignored);
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  const fs::path place = fs::temp_directory_path();
  remove_left_behind(place);
  std::string name = (place / (std::string(kPrefix) + "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr)
    throw IoError(
        fmt::format("{}: cannot make a folder there: {}", place.string(), std::strerror(errno)));
  path_ = name;
  remember(folder_path, name);
  lock_ = ::open(file(kLock).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (lock_ >= 0) ::flock(lock_, LOCK_EX | LOCK_NB);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
  num_files = 0;
  folder_path[0] = '\0';
}

std::string TemporaryFolder::file(const std::string& name) {
  std::string path = (path_ / name).string();
  remember_file(path);
  return path;
}

void remove_temporary_folder() noexcept {
  if (folder_path[0] == '\0') return;
  for (std::size_t i = 0; i < static_cast<std::size_t>(num_files); ++i)
    unlink(file_paths[i].data());
  rmdir(folder_path.data());
}

}  // namespace meshplan::cli
