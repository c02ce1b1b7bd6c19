// A GemmProblem in cuBLASLt's own words. Needs no GPU.
#pragma once

#include <cublasLt.h>

#include "products/gemm_problem.hpp"

namespace meshplan::kernels::cuda {

/// Plain memory: nothing to destroy.
struct GemmDescriptors {
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t a{}, b{}, d{};
};

/// Sums in fp32; fp32 inputs are rounded to TF32 if `allow_tf32`.
/// @throws CudaError if cuBLASLt refuses the description
GemmDescriptors describe(const GemmProblem& problem, bool allow_tf32);

/// Sets what differs from call to call: vector, aux and scales.
void set_pointers(GemmDescriptors& descriptors, const GemmProblem& problem,
                  const GemmPointers& pointers);

}  // namespace meshplan::kernels::cuda
