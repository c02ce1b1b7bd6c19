// Flags of older versions of Megatron-LM and of its forks, as those that replaced them.
#pragma once

#include <vector>

#include "formats/megatron/reading.hpp"

namespace meshplan::planner::megatron {

/// Each is followed by what it became, unless that is given, too.
void replace_older_flags(std::vector<Argument>& arguments);

}  // namespace meshplan::planner::megatron
