// cp.async: nothing is copied before the thread waits, so that a forgotten wait shows. What was
// there is gone (NaN) when the copy is asked for, so that it shows who still reads it.
#pragma once

#include <cstddef>

namespace cuda_on_cpu {

/// Both aligned to `bytes`. @throws Fault otherwise
void copy_async(void* shared, const void* global, std::size_t bytes);
/// Copies the first `source_bytes`; the rest becomes zero. `global` is not read beyond them.
void copy_async(void* shared, const void* global, std::size_t bytes, std::size_t source_bytes);
/// Ends a group of this thread's copies.
void commit_copies();
/// Does the copies of this thread's groups but the last `most_pending`.
void wait_for_copies_but(std::size_t most_pending);
/// Does all the copies that this thread has asked for.
void wait_for_copies();

}  // namespace cuda_on_cpu
