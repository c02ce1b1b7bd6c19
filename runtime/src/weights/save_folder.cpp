#include "weights/save_folder.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/paths.hpp"
#include "runtime/os/durable_file.hpp"
#include "runtime/weights/checkpoint.hpp"

namespace meshplan::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockFile = ".meshplan-lock";
constexpr std::string_view kReplaced = ".old";  // replace_folder's, before kUnfinished

[[noreturn]] void fail(const std::string& folder, const std::string& why) {
  throw IoError(fmt::format("{}: checkpoints cannot be saved there: {}", folder, why));
}

/// @returns the descriptor
int lock_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder, error.message());
  const std::string path = folder + "/" + kLockFile;
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) fail(folder, std::strerror(errno));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor);
    throw ConfigError(fmt::format(
        "{}: another job writes checkpoints there; use another --checkpoint-dir", folder));
  }
  return descriptor;
}

void write_token(int descriptor, std::int64_t token) {
  const bool written = ::ftruncate(descriptor, 0) == 0 &&
                       ::pwrite(descriptor, &token, sizeof token, 0) == sizeof token &&
                       ::fsync(descriptor) == 0;
  if (!written)
    throw IoError(fmt::format("{}: cannot be written: {}", kLockFile, std::strerror(errno)));
}

std::int64_t new_token() {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return static_cast<std::int64_t>(content_hash(fmt::format("{} {}", now, ::getpid())));
}

/// A rank on a host with a folder of its own would write where rank 0 never looks.
void check_shared(Communicator& world, const std::string& folder, std::int64_t token) {
  std::int64_t expected = token;
  world.broadcast({&expected, 1, DType::I64}, 0).wait();
  std::string seen;
  try {
    seen = read_text(folder + "/" + kLockFile);
  } catch (const ConfigError&) {
    seen.clear();
  }
  std::int64_t found = 0;
  if (seen.size() == sizeof found) std::memcpy(&found, seen.data(), sizeof found);
  if (found != expected)
    throw ConfigError(
        fmt::format("{}: rank {} does not see the folder of rank 0; use a "
                    "--checkpoint-dir on a file system that all hosts share",
                    folder, world.rank()));
}

/// A folder that a save left, step-12.tmp, or that replace_folder did, step-12.old.tmp. What else a
/// user keeps under such a name stays.
bool is_unfinished(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::string_view step = name;
  if (!step.ends_with(kUnfinished)) return false;
  step.remove_suffix(kUnfinished.size());
  if (step.ends_with(kReplaced)) step.remove_suffix(kReplaced.size());
  std::error_code ignored;
  return checkpoint_step(step) && entry.is_directory(ignored) && !entry.is_symlink(ignored);
}

void remove_unfinished(const std::string& folder) {
  std::error_code ignored;
  std::vector<fs::path> unfinished;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (is_unfinished(entry)) unfinished.push_back(entry.path());
  for (const fs::path& path : unfinished) fs::remove_all(path, ignored);
}

}  // namespace

SaveFolder::SaveFolder(std::string path, Communicator& world) : path_(std::move(path)) {
  if (world.rank() == 0) {
    token_ = new_token();
    take();
    remove_unfinished(path_);
  }
  check_shared(world, path_, token_);
  require_savable(path_);  // a host may have mounted it to be read alone
}

SaveFolder::~SaveFolder() {
  release();
}

void SaveFolder::take() {
  lock_ = lock_folder(path_);
  folder_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0) fail(path_, std::strerror(errno));
  write_token(lock_, token_);
}

void SaveFolder::release() {
  for (int* descriptor : {&lock_, &folder_})
    if (const int open = std::exchange(*descriptor, -1); open >= 0) ::close(open);
}

std::string SaveFolder::retake() {
  struct stat taken {};
  struct stat named {};
  if (::fstat(folder_, &taken) != 0) fail(path_, std::strerror(errno));
  const bool is_named = ::stat(path_.c_str(), &named) == 0;
  if (is_named && taken.st_dev == named.st_dev && taken.st_ino == named.st_ino) return "";
  const bool is_removed = taken.st_nlink == 0;
  release();
  take();
  if (is_removed)
    return fmt::format(
        "{}: was removed during the run, and the checkpoints in it are gone; it is "
        "created again, and saving goes on",
        path_);
  return fmt::format("{}: {}; earlier checkpoints are not in it, and saving goes on here", path_,
                     is_named ? "is another folder than at the start of the run (something was "
                                "moved, mounted or unmounted)"
                              : "was moved or unmounted during the run; it is created again");
}

void require_savable(const std::string& folder) {
  fs::path there = fs::absolute(folder);
  while (!is_there(there) && there.has_relative_path()) there = there.parent_path();
  if (!is_folder(there)) fail(folder, fmt::format("{} is not a folder", there.string()));
  if (::access(there.c_str(), W_OK | X_OK) != 0)
    fail(folder, fmt::format("{}: {}", there.string(), std::strerror(errno)));
}

}  // namespace meshplan::runtime
