// Writing whole folders. No file is replaced or removed but those that an earlier call wrote.
#pragma once

#include <string>
#include <vector>

#include "process/folder_record.hpp"

namespace meshplan::cli {

/// Would write_folder succeed, as far as can be told before the files are known?
/// @param adds  a folder with files in it will do
/// @throws ConfigError for a path that is taken, IoError for one that cannot be written
void require_free_folder(const std::string& path, bool adds);

/// Writes a folder beside `path` and renames it, so that there is the whole folder or none; one
/// that is there and empty stays the same folder. An interrupt removes what was written. Links and
/// `..` in the path are followed before anything is written.
/// @throws as require_free_folder
void write_folder(const std::string& path, const std::vector<FolderFile>& files);

/// As write_folder, with a record of what was written. What is in the folder already stays, but for
/// files of an earlier record (FolderChange): the new ones are written under other names and
/// renamed together.
/// @throws as require_free_folder and change_of
void write_recorded_folder(const std::string& path, const std::vector<FolderFile>& files,
                           bool adds);

/// Removes what write_folder is writing, if anything. Only async-signal-safe calls.
void remove_unfinished_folder() noexcept;

/// A rename over whatever `to` names; if `from` is empty, `to` is removed.
struct Replacement {
  std::string from;
  std::string to;
};

/// All of them, or none: what was done before one failed is undone. @throws IoError
void replace_together(const std::vector<Replacement>& replacements);

}  // namespace meshplan::cli
