#include "temporary_folder.hpp"

#include <fmt/format.h>
#include <unistd.h>

namespace meshplan::cli {

TemporaryFolder::TemporaryFolder()
    : path_(std::filesystem::temp_directory_path() / fmt::format("meshplan-{}", ::getpid())) {
  std::filesystem::create_directories(path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace meshplan::cli
