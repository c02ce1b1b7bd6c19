// Settings of a stack by their names, as files and flags spell them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/plan/stack.hpp"

namespace meshplan::program {

/// Names of all settings, in the order of their declaration.
const std::vector<std::string>& stack_setting_names();

/// Changes what "NAME=VALUE" names, for example "overlap_ep=true"; "NAME=null" leaves it to the
/// stack again. @param option  that gave it, for messages: "--stack"
/// @throws ConfigError for a name or value that there is not, with the nearest one
void set_stack(Stack& stack, std::string_view assignment, std::string_view option);

/// What is stated: "overlap_ep=true", in the order of declaration.
std::vector<std::string> stated_settings(const StackSettings& settings);

/// Those of `first`, and where it states nothing those of `second`.
StackSettings merged(const StackSettings& first, const StackSettings& second);

/// Do both state one setting, each differently?
bool contradict(const StackSettings& a, const StackSettings& b);

}  // namespace meshplan::program
