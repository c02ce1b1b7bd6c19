#include "tune/tune_folder.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include "core/error.hpp"
#include "core/paths.hpp"
#include "process/files.hpp"

namespace meshplan::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMeasured = "tune.json";
constexpr const char* kCluster = "cluster.json";
constexpr const char* kRefined = "refined.json";
constexpr const char* kTuneLock = "lock";
constexpr const char* kScratch = "scratch-";

void make_folder(const std::string& path) {
  if (is_there(path) && !is_folder(path))
    throw ConfigError(fmt::format("{}: is a file; name a folder", path));
  std::error_code error;
  fs::create_directory(path, error);
  if (error) throw IoError(fmt::format("{}: cannot be written: {}", path, error.message()));
}

}  // namespace

TuneFolder::TuneFolder(std::string path, const std::map<std::string, std::string>& request)
    : path_(std::move(path)) {
  make_folder(path_);
  const bool goes_on = is_there(path_of(kMeasured));
  if (goes_on) {
    file_ = planner::parse_tune_file(read_file(path_of(kMeasured)), path_of(kMeasured));
    planner::require_same_request(file_, request, path_of(kMeasured));
  } else if (std::error_code unreadable; !fs::is_empty(path_, unreadable)) {
    throw ConfigError(
        fmt::format("{}: holds files, but no {}; name a new folder, or one of an earlier tune",
                    path_, kMeasured));
  }
  lock_ = ::open(path_of(kTuneLock).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (lock_ < 0)
    throw IoError(
        fmt::format("{}: cannot be written: {}", path_of(kTuneLock), std::strerror(errno)));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    throw IoError(fmt::format("{}: another process tunes in it", path_));
  }
  file_.request = request;
  if (!goes_on) save();
}

TuneFolder::~TuneFolder() {
  std::error_code ignored;
  for (const std::string& file : scratch_) fs::remove(file, ignored);
  ::close(lock_);
}

void TuneFolder::save() const {
  write_file(path_of(kMeasured), planner::to_json(file_));
}

std::optional<sim::Cluster> TuneFolder::cluster() const {
  const std::string file = path_of(kCluster);
  if (!is_there(file)) return std::nullopt;
  return sim::parse_cluster(read_file(file), file);
}

void TuneFolder::keep_cluster(const sim::Cluster& cluster) const {
  write_file(path_of(kCluster), sim::to_json(cluster));
}

void TuneFolder::keep_refined(const sim::Cluster& cluster) const {
  write_file(path_of(kRefined), sim::to_json(cluster));
}

std::string TuneFolder::plan_file(std::size_t candidate) const {
  return path_of(fmt::format("plan-{:02}.json", candidate + 1));
}

std::string TuneFolder::trace_file(std::size_t candidate) const {
  return path_of(fmt::format("trace-{:02}.json", candidate + 1));
}

std::string TuneFolder::scratch_file(const std::string& name) {
  return *scratch_.insert(path_of(kScratch + name)).first;
}

std::string TuneFolder::path_of(const std::string& name) const {
  return (fs::path(path_) / name).string();
}

}  // namespace meshplan::cli
