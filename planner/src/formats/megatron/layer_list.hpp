// Lists over the layers as Megatron-LM writes them: Python's "([0]*3+[1]*58)".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshplan::planner::megatron {

/// A short pattern that repeats, "([1,0]*12)", else runs of equal values: "([0]*3+[1]*58)".
std::string layer_list_text(const std::vector<int>& values);

/// @throws ConfigError saying what is wrong, without the text's place
std::vector<int> parse_layer_list(std::string_view text);

}  // namespace meshplan::planner::megatron
