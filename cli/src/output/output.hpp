// What the command prints. Model, cluster and file names, and what files hold, are foreign text.
#pragma once

#include <cstdio>
#include <fmt/format.h>
#include <string>
#include <utility>

#include "core/printable.hpp"

namespace meshplan::cli {

/// fmt::print, but for what a terminal would obey (core/printable.hpp). All output of the command
/// goes this way, except for the progress line's own control codes.
template <typename... Args>
void output(std::FILE* stream, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = printable(fmt::format(format, std::forward<Args>(args)...));
  std::fwrite(text.data(), 1, text.size(), stream);
}

template <typename... Args>
void output(fmt::format_string<Args...> format, Args&&... args) {
  output(stdout, format, std::forward<Args>(args)...);
}

/// Flushes standard output. If it fails now, or has before, it leads nowhere from then on.
/// @returns why; empty if all is well, or it was given up before
std::string flush_or_give_up_stdout();

}  // namespace meshplan::cli
