#pragma once

#include <span>
#include <string_view>

namespace meshplan {

/// A preset that was compiled in: `name` is the file's name without extension.
struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
};

}  // namespace meshplan
