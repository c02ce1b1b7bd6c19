#include "process/folder_record.hpp"

#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/json_fields.hpp"
#include "process/files.hpp"

namespace meshplan::cli {
namespace {

namespace fs = std::filesystem;

/// A name that reaches nothing outside of its folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

/// The content's hash; empty for what is no regular file: a link, a folder, a device.
std::string hash_of(const std::string& path) {
  std::error_code unreadable;
  if (!fs::is_regular_file(fs::symlink_status(path, unreadable))) return "";
  return hex(content_hash(read_file(path)));
}

bool is_anything(const std::string& path) {
  std::error_code unreadable;
  return fs::exists(fs::symlink_status(path, unreadable));
}

}  // namespace

FolderRecord read_record(const std::string& folder) {
  const std::string path = folder + "/" + std::string(kFolderRecord);
  if (!is_anything(path)) return {};
  const Json root = parse_json(read_file(path), path);
  FolderRecord record;
  const auto files = root.is_object() ? root.find("files") : root.end();
  if (!root.is_object() || files == root.end() || !files->is_object())
    throw ConfigError(fmt::format("{}: files: expected an object of names and hashes", path));
  for (const auto& [name, hash] : files->items()) {
    if (!is_plain_name(name) || !hash.is_string())
      throw ConfigError(
          fmt::format("{}: files: \"{}\": expected the name of a file of this folder and its hash",
                      path, name));
    record[name] = hash.get<std::string>();
  }
  return record;
}

FolderFile record_file(const FolderRecord& record) {
  return {.name = std::string(kFolderRecord),
          .text = Json{{"schema_version", 1}, {"files", record}}.dump(2) + "\n"};
}

FolderChange change_of(const std::string& folder, const std::vector<FolderFile>& files) {
  const FolderRecord before = read_record(folder);
  FolderRecord after;
  FolderChange change;
  std::vector<std::string> foreign;
  std::vector<std::string> edited;
  for (const FolderFile& file : files) {
    require_invariant(is_plain_name(file.name), "files of a folder have plain names");
    const std::string path = folder + "/" + file.name;
    const std::string hash = hex(content_hash(file.text));
    const auto ours = before.find(file.name);
    if (is_anything(path)) {
      const std::string found = hash_of(path);
      if (ours == before.end() && found == hash) continue;  // whoever wrote it keeps it
      if (ours == before.end()) foreign.push_back(file.name);
      if (ours != before.end() && found != ours->second && found != hash)
        edited.push_back(file.name);
    }
    after[file.name] = hash;
    change.written.push_back(file);
  }
  if (!foreign.empty())
    throw ConfigError(fmt::format(
        "{}: --force replaces what an earlier export wrote, and {} {} of other origin; move {} "
        "away, or name another folder",
        folder, fmt::join(foreign, ", "), foreign.size() == 1 ? "is" : "are",
        foreign.size() == 1 ? "it" : "them"));
  if (!edited.empty())
    throw ConfigError(fmt::format(
        "{}: {} {} changed since {} written; move {} away, or name another folder", folder,
        fmt::join(edited, ", "), edited.size() == 1 ? "was" : "were",
        edited.size() == 1 ? "it was" : "they were", edited.size() == 1 ? "it" : "them"));
  for (const auto& [name, hash] : before)
    if (!after.contains(name) && hash_of(folder + "/" + name) == hash)
      change.removed.push_back(name);
  change.written.push_back(record_file(after));
  return change;
}

}  // namespace meshplan::cli
