#include "os/orphaned_memory.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace meshplan::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "/dev/shm";
constexpr std::array<std::string_view, 3> kPrefixes{"mpich_shar_tmp", "ucx_shm_posix_",
                                                    "meshplan-"};

std::set<std::string> files_of_jobs(std::int64_t since_s) {
  std::set<std::string> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(kFolder, ignored)) {
    const std::string name = entry.path().filename().string();
    const auto is_prefix = [&](std::string_view prefix) { return name.starts_with(prefix); };
    struct stat info {};
    if (std::ranges::any_of(kPrefixes, is_prefix) && ::lstat(entry.path().c_str(), &info) == 0 &&
        S_ISREG(info.st_mode) && info.st_uid == ::geteuid() && info.st_ctime >= since_s)
      files.insert(entry.path().string());
  }
  return files;
}

/// Leaves in `files` what the process neither has open nor has mapped.
void forget_used_by(const fs::path& process, std::set<std::string>& files) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(process / "fd", ignored))
    files.erase(fs::read_symlink(entry.path(), ignored).string());
  std::ifstream maps(process / "maps");
  for (std::string line; std::getline(maps, line);)
    if (const auto path = line.find('/'); path != std::string::npos) files.erase(line.substr(path));
}

}  // namespace

int remove_orphaned_shared_memory(std::int64_t since_s) {
  std::set<std::string> files = files_of_jobs(since_s);
  if (files.empty()) return 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos)
      forget_used_by(entry.path(), files);
  }
  int removed = 0;
  for (const std::string& file : files) removed += ::unlink(file.c_str()) == 0 ? 1 : 0;
  return removed;
}

}  // namespace meshplan::runtime
