// Threads for libraries that have none.
#pragma once

#include "planner/search/search.hpp"

namespace meshplan::cli {

/// Runs bodies on `num_threads` threads, at most one a core; 0 = one a core. If bodies throw, the
/// exception of the smallest index is passed on, after all threads have stopped.
planner::ParallelFor on_threads(int num_threads);

}  // namespace meshplan::cli
