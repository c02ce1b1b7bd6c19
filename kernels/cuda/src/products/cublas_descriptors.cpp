#include "products/cublas_descriptors.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "library/library_checks.hpp"

namespace meshplan::kernels::cuda {

namespace {

cudaDataType_t cuda_type(const GemmMatrix& matrix) {
  if (matrix.float8) return *matrix.float8 == Float8Format::E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
  switch (matrix.dtype) {
    case DType::F32:
      return CUDA_R_32F;
    case DType::BF16:
      return CUDA_R_16BF;
    case DType::F16:
      return CUDA_R_16F;
    default:
      throw InvariantError(fmt::format("cuBLASLt products in {}", name_of(matrix.dtype)));
  }
}

cublasLtEpilogue_t cublas_epilogue(GemmEpilogue epilogue) {
  switch (epilogue) {
    case GemmEpilogue::None:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case GemmEpilogue::Bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case GemmEpilogue::Gelu:
      return CUBLASLT_EPILOGUE_GELU;
    case GemmEpilogue::GeluBias:
      return CUBLASLT_EPILOGUE_GELU_BIAS;
    case GemmEpilogue::GeluAux:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case GemmEpilogue::GeluAuxBias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case GemmEpilogue::Relu:
      return CUBLASLT_EPILOGUE_RELU;
    case GemmEpilogue::ReluBias:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
    case GemmEpilogue::DGelu:
      return CUBLASLT_EPILOGUE_DGELU;
    case GemmEpilogue::BiasGradB:
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  throw InvariantError("an epilogue without a cuBLASLt name");
}

template <class T>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  check(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
}
void set_layout(cublasLtMatrixLayoutOpaque_t& layout, const GemmMatrix& matrix) {
  check(
      cublasLtMatrixLayoutInit(&layout, cuda_type(matrix), static_cast<std::uint64_t>(matrix.rows),
                               static_cast<std::uint64_t>(matrix.columns), matrix.leading_dim),
      "cublasLtMatrixLayoutInit");
}

cublasComputeType_t compute_type(const GemmProblem& problem, bool allow_tf32) {
  return problem.a.dtype == DType::F32 && allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                     : CUBLAS_COMPUTE_32F;
}

}  // namespace

GemmDescriptors describe(const GemmProblem& problem, bool allow_tf32) {
  GemmDescriptors result;
  check(cublasLtMatmulDescInit(&result.operation, compute_type(problem, allow_tf32), CUDA_R_32F),
        "cublasLtMatmulDescInit");
  set(result.operation, CUBLASLT_MATMUL_DESC_TRANSA,
      static_cast<std::int32_t>(problem.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(result.operation, CUBLASLT_MATMUL_DESC_TRANSB,
      static_cast<std::int32_t>(problem.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(result.operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
      static_cast<std::uint32_t>(cublas_epilogue(problem.epilogue)));
  if (has_aux(problem.epilogue))
    set(result.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, problem.aux_leading_dim);
  if (problem.scaled)
    set(result.operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM,
        static_cast<std::int8_t>(problem.fast_accumulation ? 1 : 0));
  set_layout(result.a, problem.a);
  set_layout(result.b, problem.b);
  set_layout(result.d, problem.d);
  return result;
}

void set_pointers(GemmDescriptors& descriptors, const GemmProblem& problem,
                  const GemmPointers& pointers) {
  if (has_vector(problem.epilogue))
    set(descriptors.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointers.vector);
  if (has_aux(problem.epilogue))
    set(descriptors.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pointers.aux);
  if (problem.scaled) {
    set(descriptors.operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, pointers.a_scale);
    set(descriptors.operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, pointers.b_scale);
  }
}

}  // namespace meshplan::kernels::cuda
