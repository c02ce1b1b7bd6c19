#include "linear.hpp"

namespace meshplan::kernels::cuda {

namespace {

[[noreturn]] void refuse() {
  throw InvariantError("the CUDA backend has no kernel for linear layers yet");
}

}  // namespace

std::int64_t LinearKernels::scratch_bytes(const Context& /*context*/, const LinearForward& /*op*/) {
  return 0;
}
std::int64_t LinearKernels::scratch_bytes(const Context& /*context*/,
                                          const LinearInputGrad& /*op*/) {
  return 0;
}
std::int64_t LinearKernels::scratch_bytes(const Context& /*context*/,
                                          const LinearWeightGrad& /*op*/) {
  return 0;
}
void LinearKernels::run(const Context& /*context*/, const LinearForward& /*op*/) {
  refuse();
}
void LinearKernels::run(const Context& /*context*/, const LinearInputGrad& /*op*/) {
  refuse();
}
void LinearKernels::run(const Context& /*context*/, const LinearWeightGrad& /*op*/) {
  refuse();
}

}  // namespace meshplan::kernels::cuda
