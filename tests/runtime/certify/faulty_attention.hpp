// Kernels whose attention is wrong, on any backend: bugs of a device that no program shows.
#pragma once

#include <memory>
#include <string>

#include "kernels/backend.hpp"

namespace meshplan::test {

enum class AttentionFault {
  None,
  TinyScale,       // 1e-4 of what the scores are scaled by, forward and backward
  LostOutputGrad,  // the backward pass takes the gradient of its output for zero
};

/// Everything else is the inner backend's, which must outlive the result.
std::unique_ptr<kernels::Backend> with_faulty_attention(kernels::Backend& inner,
                                                        AttentionFault fault);

}  // namespace meshplan::test
