// Words for a shell: in scripts that are written, in commands that are printed.
#pragma once

#include <string>
#include <string_view>

namespace meshplan {

/// The word as a shell reads it back: quoted where it holds what a shell would take for itself.
std::string shell_quoted(std::string_view word);

}  // namespace meshplan
