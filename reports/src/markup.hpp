// Text inside SVG and HTML.
#pragma once

#include <string>
#include <string_view>

namespace meshplan::reports {

/// As text between tags: what would begin one, or a character's name, stands for itself.
std::string escaped(std::string_view text);

}  // namespace meshplan::reports
