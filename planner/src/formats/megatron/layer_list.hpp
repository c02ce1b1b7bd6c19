// Lists over the layers as Megatron-LM writes them: Python's "([0]*3+[1]*58)".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/megatron/reading.hpp"

namespace meshplan::planner::megatron {

/// The shortest pattern that repeats to the list, whose end may break off.
std::vector<int> repeated_part(const std::vector<int>& values);

/// A value for each layer: a list of the script's, or a number that `of_number` (layer, number)
/// makes them from. @throws ConfigError naming place, flag and value
std::vector<int> read_layer_list(const Reading& reading, const Argument& given, int num_layers,
                                 const std::function<int(int, std::int64_t)>& of_number);
/// Of a number: every so many layers, the last of them, a 0 among 1.
int zero_at_last(int layer, std::int64_t every);

/// A short pattern that repeats, "([1,0]*12)", else runs of equal values: "([0]*3+[1]*58)".
std::string layer_list_text(const std::vector<int>& values);

/// @throws ConfigError saying what is wrong, without the text's place
std::vector<int> parse_layer_list(std::string_view text);

}  // namespace meshplan::planner::megatron
