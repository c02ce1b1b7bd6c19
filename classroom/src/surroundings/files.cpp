// A page has no files: what names one is told so.
#include "process/files.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::cli {

bool path_exists(const std::string&) {
  return false;
}

bool folder_exists(const std::string&) {
  return false;
}

std::string read_file(const std::string& path, std::size_t /*most_bytes*/) {
  throw ConfigError(
      fmt::format("{}: a page reads no files; give its content, JSON that begins with {{", path));
}

}  // namespace meshplan::cli
