// A page has one thread for each question: bodies run in order on it.
#include "process/threads.hpp"

namespace meshplan::cli {

planner::ParallelFor on_threads(int) { return planner::serial(); }

}  // namespace meshplan::cli
