// A page has one thread for each question: bodies run in order on it.
#include "process/threads.hpp"

namespace meshplan::cli {

planner::ParallelFor on_threads(int) { return planner::serial(); }

}  // namespace meshplan::cli

/// Called for objects of a thread that are to be destroyed at its end: the module's one ends with
/// the page.
extern "C" int __cxa_thread_atexit(void (* /*destroy*/)(void*), void* /*object*/,
                                   void* /*module*/) {
  return 0;
}
