// How tables call the parts of a step.
#pragma once

#include <string_view>

#include "sim/engine/step_parts.hpp"

namespace meshplan::reports {

/// "matrix products below the peak"
std::string_view words_for(sim::StepPart part);

}  // namespace meshplan::reports
