// What a path names, asked of a path that a user gave: one that no file can have ("File name too
// long", a folder that may not be read) names nothing, where the library's functions throw.
#pragma once

#include <filesystem>

namespace meshplan {

inline bool is_there(const std::filesystem::path& path) {
  std::error_code unreadable;
  return std::filesystem::exists(path, unreadable);
}

inline bool is_folder(const std::filesystem::path& path) {
  std::error_code unreadable;
  return std::filesystem::is_directory(path, unreadable);
}

inline bool is_file(const std::filesystem::path& path) {
  std::error_code unreadable;
  return std::filesystem::is_regular_file(path, unreadable);
}

}  // namespace meshplan
