// Matrix products of one backend, with what cuBLASLt does not fuse done in passes of their own.
#pragma once

#include "device/context.hpp"
#include "kernels/products/float8.hpp"
#include "kernels/products/linear.hpp"
#include "products/gemm.hpp"

namespace meshplan::kernels::cuda {

class LinearKernels {
 public:
  explicit LinearKernels(const GemmOptions& options) : gemm_(options) {}
  std::int64_t scratch_bytes(const Context& context, const LinearForward& op);
  std::int64_t scratch_bytes(const Context& context, const LinearInputGrad& op);
  std::int64_t scratch_bytes(const Context& context, const LinearWeightGrad& op);
  std::int64_t scratch_bytes(const Context& context, const ScaledProduct& op);
  void run(const Context& context, const LinearForward& op);
  void run(const Context& context, const LinearInputGrad& op);
  void run(const Context& context, const LinearWeightGrad& op);
  /// @throws ConfigError on a GPU without FP8 matrix units
  void run(const Context& context, const ScaledProduct& op);

  Gemm& gemm() { return gemm_; }

 private:
  Gemm gemm_;
};

}  // namespace meshplan::kernels::cuda
