// --software and --stack: what runs a plan, and how it is asked to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options/command_line.hpp"
#include "program/plan/stack.hpp"

namespace meshplan::cli {

struct StackOptions {
  std::optional<std::string> software;  // absent: ours, or the file's own
  std::vector<std::string> settings;    // "overlap_ep=true"
};

/// --software --stack, which may stand beside a plan's file
void add_stack_options(Command& command, StackOptions& options);

/// Changes a plan's stack as the options say. Settings of another stack go when --software names a
/// different one. @throws ConfigError for an unknown stack, release, setting or value
void take_stack(const StackOptions& options, program::Stack& stack);

}  // namespace meshplan::cli
