#include "formats/megatron/known_flags.hpp"

#include <algorithm>
#include <sstream>

#include "core/embedded_file.hpp"

namespace meshplan::planner {

std::span<const EmbeddedFile> data_presets();

namespace megatron {

const std::vector<std::string>& known_flags() {
  static const std::vector<std::string> flags = [] {
    std::vector<std::string> names;
    for (const EmbeddedFile& file : data_presets()) {
      if (file.name != "megatron_lm_flags") continue;
      std::istringstream lines{std::string(file.text)};
      for (std::string line; std::getline(lines, line);)
        names.push_back(line.substr(0, line.find('\t')));
    }
    std::ranges::sort(names);
    return names;
  }();
  return flags;
}

bool is_known_flag(std::string_view flag) {
  return std::ranges::binary_search(known_flags(), flag);
}

}  // namespace megatron
}  // namespace meshplan::planner
