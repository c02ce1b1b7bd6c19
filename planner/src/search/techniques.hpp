// How simple a plan is to run: what decides between plans that cannot be told apart.
#pragma once

#include "planner/search/space.hpp"

namespace meshplan::planner {

/// Techniques that somebody who runs the plan has to understand, watch and debug.
int techniques(const Candidate& candidate);

}  // namespace meshplan::planner
