// cp.async: nothing is copied before the thread waits, so that a forgotten wait shows.
#pragma once

#include <cstddef>

namespace cuda_on_cpu {

/// Both aligned to `bytes`. @throws Fault otherwise
void copy_async(void* shared, const void* global, std::size_t bytes);
/// Does the copies that this thread has asked for since it last waited.
void wait_for_copies();

}  // namespace cuda_on_cpu
