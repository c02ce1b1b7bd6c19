// Reading and writing files.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "core/text_blocks.hpp"

namespace meshplan::cli {

/// Does the path name something; does it name a folder?
bool path_exists(const std::string& path);
bool folder_exists(const std::string& path);

/// The largest text that is read as a whole, where nothing else is said.
constexpr std::size_t kMostTextBytes = std::size_t{1} << 26;

/// A regular file, or a pipe that has a writer, once: `<(jq ...)`, /dev/stdin.
/// @throws ConfigError if there is no such file, with the nearest name beside it, if it is a
/// device, a folder or larger than `most_bytes`; IoError if it cannot be read
std::string read_file(const std::string& path, std::size_t most_bytes = kMostTextBytes);

/// The same block by block. Of a pipe no more than read_file takes is read.
/// @throws as read_file, also while blocks are taken
TextBlocks file_blocks(const std::string& path, std::size_t most_bytes);

/// Writes beside `path` and renames, so that a reader finds the old file or the new one, never a
/// part; a device or pipe is written as it is. An interrupt removes what was written.
/// @throws IoError
void write_file(const std::string& path, std::string_view text);

/// Would write_file succeed? Asked before the work whose result is to be written, so that an hour's
/// run does not end in a missing folder. Absent paths pass. @throws IoError naming the path and why
void require_writable(std::initializer_list<std::optional<std::string>> paths);

/// "; near it: a.json, b.json", the files of the same folder whose names are closest; empty if none
std::string near_names(const std::string& path);

/// A file that goes with the object, and in an interrupt handler, unless it is finished. One at a
/// time.
class UnfinishedFile {
 public:
  /// @param path  nothing is there yet. @throws IoError
  explicit UnfinishedFile(const std::string& path);
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;
  ~UnfinishedFile();
  static void finished();
};

/// Removes the file that write_file is writing, if any. Only async-signal-safe calls.
void remove_unfinished_file() noexcept;

}  // namespace meshplan::cli
