#pragma once

#include <string_view>

namespace meshplan::runtime {

/// Writes all of it, whatever the pipe does; gives up at an error.
void write_whole(int descriptor, std::string_view text);

}  // namespace meshplan::runtime
