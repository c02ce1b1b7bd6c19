// Files that are on the disk when a call returns, and files in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace meshplan::runtime {

/// A new file that is written front to back.
class DurableFile {
 public:
  /// Replaces what is there. @throws IoError naming the path and the cause
  explicit DurableFile(const std::string& path);
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void append(std::span<const std::byte> data);
  /// Returns when the data is on the disk.
  void finish();

 private:
  std::string path_;
  int descriptor_ = -1;
};

/// Writes beside `path`, makes it durable, then renames: a reader finds all of it or nothing.
/// @throws IoError
void write_durably(const std::string& path, std::string_view text);

/// Makes renames and new entries of a folder durable. @throws IoError
void sync_folder(const std::string& path);

/// Renames, replacing what `to` names: a folder is exchanged in one step, and the old one is
/// removed after that. Both have the same parent. @throws IoError
void replace_folder(const std::string& from, const std::string& to);

/// @throws ConfigError if there is no such regular file of up to 2^28 bytes, IoError if it cannot
/// be read
std::string read_text(const std::string& path);

/// All bytes of a regular file, read-only.
class MappedFile {
 public:
  /// @throws ConfigError if it is missing or no regular file, IoError if it cannot be mapped
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace meshplan::runtime
