#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.hpp"

namespace meshplan::kernels::test {

/// Every implementation, instruction set and thread count that this test program checks.
/// Each program of kernel tests defines it: backends_cpu.cpp, backends_cuda.cpp.
std::vector<std::unique_ptr<Backend>> tested_backends();

}  // namespace meshplan::kernels::test
