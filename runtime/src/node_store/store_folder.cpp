#include "node_store/store_folder.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/checkpoint_files.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/json_fields.hpp"
#include "program/plan_file/plan_file.hpp"
#include "runtime/os/durable_file.hpp"
#include "runtime/weights/checkpoint.hpp"

namespace meshplan::runtime {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kPrivate = 0700;

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

/// As part of a file name; names that differ stay different.
std::string file_name_of(const std::string& node) {
  constexpr std::size_t kLongest = 100;
  if (!node.empty() && node.size() <= kLongest && std::ranges::all_of(node, is_plain)) return node;
  return "node-" + hex(content_hash(node));
}

bool is_own_folder(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

std::string step_folder(const std::string& store, std::int64_t step) {
  return checkpoint_path(store, step);
}

/// The rank whose index a file of this name is; -1 for others.
int rank_of_index(const fs::path& path) {
  constexpr std::string_view kPrefix = "rank-";
  const std::string stem = path.stem().string();
  if (path.extension() != ".json" || !stem.starts_with(kPrefix)) return -1;
  const std::string digits = stem.substr(kPrefix.size());
  constexpr std::size_t kMostDigits = 9;
  if (digits.empty() || digits.size() > kMostDigits ||
      !std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; }))
    return -1;
  return std::stoi(digits);
}

/// @throws ConfigError, IoError for what is damaged
StoredShare read_share(const std::string& store, std::int64_t step, int rank) {
  const std::string index_path = stored_index(store, step, rank);
  const CheckpointIndex index = parse_index(read_text(index_path), index_path);
  const std::string path = stored_share(store, step, rank);
  std::error_code error;
  const auto bytes = static_cast<std::int64_t>(fs::file_size(path, error));
  if (error || index.manifest.files.size() != 1 || bytes != index.manifest.files.front().bytes ||
      index.run.step != step)
    throw ConfigError(fmt::format("{}: is not what its index says", path));
  return {.run = index.run.id.value_or(""),
          .step = step,
          .rank = rank,
          .ranks = program::parse_plan(index.plan_json, index_path).parallel.world_size()};
}

}  // namespace

std::string store_path(const std::string& root, const std::string& checkpoints,
                       const std::string& node) {
  fs::path folder = fs::absolute(checkpoints).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "a/" is "a"
  return fmt::format("{}/meshplan-state-{}-{}-{}", root, ::geteuid(),
                     hex(content_hash(folder.string())), file_name_of(node));
}

void open_store(const std::string& path) {
  if (::mkdir(path.c_str(), kPrivate) != 0 && errno != EEXIST)
    throw IoError(fmt::format("{}: cannot be created: {}", path, std::strerror(errno)));
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0)
    throw IoError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 0077) != 0)
    throw IoError(fmt::format("{}: is not a folder of this user alone (mode 0700)", path));
}

bool remove_store(const std::string& path) noexcept {
  if (!is_own_folder(path)) return false;
  std::error_code ignored;
  fs::remove_all(path, ignored);
  return true;
}

void remove_other_steps(const std::string& path, std::int64_t step) noexcept {
  if (!is_own_folder(path)) return;
  std::error_code ignored;
  const std::string kept = step_folder(path, step);
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(path, ignored))
    if (entry.path() != fs::path(kept)) others.push_back(entry.path());
  for (const fs::path& other : others) fs::remove_all(other, ignored);
}

void remove_step(const std::string& path, std::int64_t step) noexcept {
  std::error_code ignored;
  fs::remove_all(step_folder(path, step), ignored);
}

std::string stored_share(const std::string& store, std::int64_t step, int rank) {
  return step_folder(store, step) + "/" + checkpoint_share_name(rank);
}

std::string stored_index(const std::string& store, std::int64_t step, int rank) {
  return fs::path(stored_share(store, step, rank)).replace_extension(".json").string();
}

std::vector<StoredShare> stored_shares(const std::string& store, std::vector<std::string>& faults) {
  std::vector<StoredShare> shares;
  if (!is_own_folder(store)) return shares;
  std::error_code ignored;
  for (const auto& folder : fs::directory_iterator(store, ignored)) {
    const auto step = checkpoint_step(folder.path().filename().string());
    if (!step) continue;
    for (const auto& entry : fs::directory_iterator(folder.path(), ignored)) {
      const int rank = rank_of_index(entry.path());
      if (rank < 0) continue;
      try {
        shares.push_back(read_share(store, *step, rank));
      } catch (const ConfigError& error) {
        faults.emplace_back(error.what());
      } catch (const IoError& error) {
        faults.emplace_back(error.what());
      }
    }
  }
  return shares;
}

}  // namespace meshplan::runtime
