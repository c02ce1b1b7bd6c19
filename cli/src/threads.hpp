// Threads for libraries that have none.
#pragma once

#include "planner/search.hpp"

namespace meshplan::cli {

/// Runs bodies on `num_threads` threads; 0 = as many as the machine has cores. If bodies throw, the
/// exception of the smallest index is passed on, after all threads have stopped.
planner::ParallelFor on_threads(int num_threads);

}  // namespace meshplan::cli
