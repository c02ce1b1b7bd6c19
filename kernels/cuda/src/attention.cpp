#include "attention.hpp"

namespace meshplan::kernels::cuda {

namespace {

[[noreturn]] void refuse() {
  throw InvariantError("the CUDA backend has no kernel for attention yet");
}

}  // namespace

std::int64_t AttentionKernels::scratch_bytes(const Context& /*context*/,
                                             const AttentionForward& /*op*/) {
  return 0;
}
std::int64_t AttentionKernels::scratch_bytes(const Context& /*context*/,
                                             const AttentionBackward& /*op*/) {
  return 0;
}
void AttentionKernels::run(const Context& /*context*/, const AttentionForward& /*op*/) {
  refuse();
}
void AttentionKernels::run(const Context& /*context*/, const AttentionBackward& /*op*/) {
  refuse();
}

}  // namespace meshplan::kernels::cuda
