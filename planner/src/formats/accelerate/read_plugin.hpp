// The section of accelerate's Megatron-LM plugin.
#pragma once

#include <optional>

#include "formats/text/settings.hpp"
#include "planner/formats/formats.hpp"

namespace meshplan::planner {

/// @param imported  its plan's model is set
/// @return micro-batches of a step, where the section says how many
std::optional<int> read_megatron_plugin(Settings& in, int processes, ImportedPlan& imported);

}  // namespace meshplan::planner
