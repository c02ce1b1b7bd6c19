// What a command wrote into a folder: only that may be replaced or removed by a later one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan::cli {

struct FolderFile {
  std::string name;
  std::string text;
  bool executable = false;
};

/// A hidden file beside the others.
constexpr std::string_view kFolderRecord = ".meshplan-files.json";

/// Names of files with the hash (hex(content_hash)) of what was written.
using FolderRecord = std::map<std::string, std::string>;

/// The record that the folder holds; empty if it has none. @throws ConfigError if it is damaged, or
/// names a file outside of the folder
FolderRecord read_record(const std::string& folder);

FolderFile record_file(const FolderRecord& record);

/// How the files of a folder that holds others change it.
struct FolderChange {
  std::vector<FolderFile> written;   // with the new record, which is the last
  std::vector<std::string> removed;  // of the earlier export, and no longer of this one
};

/// Files of other origin stay: the record of an earlier change says which are ours, as long as they
/// have not been edited. @throws ConfigError naming all files that would have to be replaced, but
/// are not ours
FolderChange change_of(const std::string& folder, const std::vector<FolderFile>& files);

}  // namespace meshplan::cli
