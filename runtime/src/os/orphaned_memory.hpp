#pragma once

#include <cstdint>

namespace meshplan::runtime {

/// Removes shared memory (/dev/shm) that a job left whose ranks died between making it and
/// attaching to it: files of MPICH, UCX or meshplan, of this user, changed since `since_s` (Unix
/// time), that no process of this user has open or mapped. Call it when the job's ranks are gone.
/// @returns how many it removed
int remove_orphaned_shared_memory(std::int64_t since_s);

}  // namespace meshplan::runtime
