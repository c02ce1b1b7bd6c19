// Completion of the command's words in shells, made of what the command says of itself.
#pragma once

#include <string>

#include "options/description.hpp"

namespace meshplan::cli {

/// A script for bash 4.4 or later, to be sourced or put among bash-completion's.
std::string bash_completion(const ProgramInfo& program);
/// A function file `_meshplan` for zsh's completion system.
std::string zsh_completion(const ProgramInfo& program);
/// A file of fish's `complete` commands.
std::string fish_completion(const ProgramInfo& program);

}  // namespace meshplan::cli
