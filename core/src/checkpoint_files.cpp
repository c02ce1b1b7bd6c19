#include "core/checkpoint_files.hpp"

#include <filesystem>
#include <fmt/format.h>

#include "core/paths.hpp"

namespace meshplan {

std::string checkpoint_share_name(int rank) {
  return fmt::format("rank-{:05d}.safetensors", rank);
}

std::string checkpoint_around(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code unreadable;
  // A link is replaced where it lies, so the last name stays as it is.
  const fs::path folder =
      fs::weakly_canonical(fs::absolute(path, unreadable).parent_path(), unreadable);
  for (const fs::path& candidate : {folder, folder.parent_path()})  // or in its hugging_face/
    if (is_there(candidate / checkpoint_share_name(0))) return candidate.string();
  return "";
}

}  // namespace meshplan
