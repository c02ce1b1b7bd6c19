// Which flags Megatron-LM has (planner/data/megatron_lm_flags.tsv).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshplan::planner::megatron {

/// Sorted.
const std::vector<std::string>& known_flags();
bool is_known_flag(std::string_view flag);

}  // namespace meshplan::planner::megatron
