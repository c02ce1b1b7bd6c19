// Attention of one backend, on our own kernels.
#pragma once

#include "context.hpp"
#include "kernels/attention.hpp"

namespace meshplan::kernels::cuda {

class AttentionKernels {
 public:
  std::int64_t scratch_bytes(const Context& context, const AttentionForward& op);
  std::int64_t scratch_bytes(const Context& context, const AttentionBackward& op);
  void run(const Context& context, const AttentionForward& op);
  void run(const Context& context, const AttentionBackward& op);
};

}  // namespace meshplan::kernels::cuda
