// Matrix products of one backend. Plans and heuristics are kept between calls.
#pragma once

#include "context.hpp"
#include "kernels/linear.hpp"

namespace meshplan::kernels::cuda {

class LinearKernels {
 public:
  explicit LinearKernels(bool allow_tf32) : allow_tf32_(allow_tf32) {}
  std::int64_t scratch_bytes(const Context& context, const LinearForward& op);
  std::int64_t scratch_bytes(const Context& context, const LinearInputGrad& op);
  std::int64_t scratch_bytes(const Context& context, const LinearWeightGrad& op);
  void run(const Context& context, const LinearForward& op);
  void run(const Context& context, const LinearInputGrad& op);
  void run(const Context& context, const LinearWeightGrad& op);

 private:
  [[maybe_unused]] bool allow_tf32_;
};

}  // namespace meshplan::kernels::cuda
