// The parts of a launch script.
#pragma once

#include <string>

#include "formats/megatron_flags/flag.hpp"

namespace meshplan::planner::megatron {

/// Name, comment and flags of an array: "MODEL_ARGS=(\n  --num-layers 80\n)".
std::string array_text(Group group, const program::Plan& plan);
std::string_view array_name(Group group);

/// In the order in which scripts pass them on.
const std::vector<Group>& groups();

}  // namespace meshplan::planner::megatron
