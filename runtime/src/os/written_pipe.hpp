// What a process has written into a pipe, and whether it was read.
#pragma once

#include <chrono>

namespace meshplan::runtime {

/// Waits until all that is in the pipe has been read, or for `most`; returns at once where the
/// descriptor is no pipe.
void wait_until_read(int descriptor, std::chrono::milliseconds most);

}  // namespace meshplan::runtime
