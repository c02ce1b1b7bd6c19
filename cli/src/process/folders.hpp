// Writing whole folders.
#pragma once

#include <string>
#include <vector>

namespace meshplan::cli {

struct FolderFile {
  std::string name;
  std::string text;
  bool executable = false;
};

/// Would write_folder succeed? @param replaces  a folder with files in it, too
/// @throws ConfigError for a path that is taken, IoError for one that cannot be written
void require_free_folder(const std::string& path, bool replaces);

/// Writes a folder beside `path` and renames it, so that there is the whole folder or none. An
/// interrupt removes what was written.
/// @param replaces  what stands there is moved aside first, and removed once the new one is there
/// @throws as require_free_folder
void write_folder(const std::string& path, const std::vector<FolderFile>& files, bool replaces);

/// Removes the folder that write_folder is writing, if any. Only async-signal-safe calls.
void remove_unfinished_folder() noexcept;

}  // namespace meshplan::cli
