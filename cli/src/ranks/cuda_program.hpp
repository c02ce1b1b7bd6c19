// meshplan-cuda: the same program with CUDA linked in. It stands beside meshplan, which becomes it
// when a GPU is to be used: NVIDIA's libraries cost a process 150 MiB and a tenth of a second
// before main, which planning and CPU ranks need not pay.
#pragma once

#include <string>

namespace meshplan::cli {

/// Replaces this process by meshplan-cuda with the same arguments; call before MPI is started.
/// @returns only if it cannot, why: it was not built, or the machine has no NVIDIA driver
std::string become_cuda_program();

}  // namespace meshplan::cli
