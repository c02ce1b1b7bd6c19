// Reading and writing whole files.
#pragma once

#include <string>
#include <string_view>

namespace meshplan::cli {

/// @throws ConfigError if there is no such file, with the nearest name beside it; IoError if it
/// cannot be read
std::string read_file(const std::string& path);

/// Writes beside `path` and renames, so that a reader finds the old file or the new one, never a
/// part. An interrupt removes what was written. @throws IoError
void write_file(const std::string& path, std::string_view text);

/// "; near it: a.json, b.json", the files of the same folder whose names are closest; empty if none
std::string near_names(const std::string& path);

/// Removes the file that write_file is writing, if any. Only async-signal-safe calls.
void remove_unfinished_file() noexcept;

}  // namespace meshplan::cli
