// cuBLASLt's descriptors need no GPU: what they hold is read back.
#include "products/cublas_descriptors.hpp"

#include <array>
#include <catch2/catch.hpp>

namespace meshplan::kernels::cuda::test {

namespace {

template <class T>
T read(GemmDescriptors& d, cublasLtMatmulDescAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  REQUIRE(cublasLtMatmulDescGetAttribute(&d.operation, attribute, &value, sizeof(value),
                                         &written) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(written == sizeof(value));
  return value;
}

template <class T>
T read(cublasLtMatrixLayoutOpaque_t& layout, cublasLtMatrixLayoutAttribute_t attribute) {
  T value{};
  std::size_t written = 0;
  REQUIRE(cublasLtMatrixLayoutGetAttribute(&layout, attribute, &value, sizeof(value), &written) ==
          CUBLAS_STATUS_SUCCESS);
  return value;
}

}  // namespace

TEST_CASE("cuBLASLt is told transposition, epilogue, aux and layout", "[kernels][cuda]") {
  alignas(16) std::array<float, 16> memory{};
  const LinearForward op{.shape = {3, 4, 8},
                         .dtype = DType::BF16,
                         .x_stride = 8,
                         .weight_stride = 16,
                         .bias = memory.data(),
                         .y_stride = 24,
                         .activation = ActivationKind::GeluTanh,
                         .pre_activation = memory.data() + 4,
                         .pre_activation_stride = 32};
  const GemmProblem problem = *fused_gemm(op);
  GemmDescriptors d = describe(problem, false);
  set_pointers(d, problem, gemm_pointers(op));
  CHECK(read<std::int32_t>(d, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T);
  CHECK(read<std::int32_t>(d, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_N);
  CHECK(read<std::uint32_t>(d, CUBLASLT_MATMUL_DESC_EPILOGUE) == CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  CHECK(read<std::int64_t>(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD) == 32);
  CHECK(read<const void*>(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER) == memory.data());
  CHECK(read<const void*>(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER) == memory.data() + 4);
  CHECK(read<std::uint32_t>(d.a, CUBLASLT_MATRIX_LAYOUT_TYPE) == CUDA_R_16BF);
  CHECK(read<std::uint64_t>(d.a, CUBLASLT_MATRIX_LAYOUT_ROWS) == 4);
  CHECK(read<std::uint64_t>(d.a, CUBLASLT_MATRIX_LAYOUT_COLS) == 8);
  CHECK(read<std::int64_t>(d.a, CUBLASLT_MATRIX_LAYOUT_LD) == 16);
  CHECK(read<std::int64_t>(d.d, CUBLASLT_MATRIX_LAYOUT_LD) == 24);
}

TEST_CASE("fp32 products keep their bits unless TF32 is allowed", "[kernels][cuda]") {
  const GemmProblem problem = plain_gemm(
      LinearInputGrad{.shape = {3, 4, 5}, .dy_stride = 5, .weight_stride = 4, .dx_stride = 4});
  for (const bool allow_tf32 : {false, true}) {
    GemmDescriptors d = describe(problem, allow_tf32);
    CHECK(read<std::int32_t>(d, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE) ==
          (allow_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F));
    CHECK(read<std::int32_t>(d, CUBLASLT_MATMUL_DESC_SCALE_TYPE) == CUDA_R_32F);
  }
}

TEST_CASE("cuBLASLt is told the formats and scales of FP8", "[kernels][cuda]") {
  alignas(16) std::array<std::uint8_t, 64> memory{};
  const float scales[2] = {2.0F, 3.0F};
  const ScaledProduct op{.m = 16,
                         .n = 32,
                         .k = 48,
                         .a_format = Float8Format::E5M2,
                         .a = memory.data(),
                         .b = memory.data() + 16,
                         .a_scale = &scales[0],
                         .b_scale = &scales[1],
                         .out_dtype = DType::F32};
  const GemmProblem problem = scaled_gemm(op);
  GemmDescriptors d = describe(problem, false);
  set_pointers(d, problem, gemm_pointers(op));
  CHECK(read<std::int32_t>(d, CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T);
  CHECK(read<std::int32_t>(d, CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_N);
  CHECK(read<const void*>(d, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER) == &scales[1]);
  CHECK(read<const void*>(d, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER) == &scales[0]);
  CHECK(read<std::uint32_t>(d.a, CUBLASLT_MATRIX_LAYOUT_TYPE) == CUDA_R_8F_E4M3);
  CHECK(read<std::uint32_t>(d.b, CUBLASLT_MATRIX_LAYOUT_TYPE) == CUDA_R_8F_E5M2);
  CHECK(read<std::uint32_t>(d.d, CUBLASLT_MATRIX_LAYOUT_TYPE) == CUDA_R_32F);
}

TEST_CASE("cuBLASLt accumulates FP8 products fast where the operation allows it, and no others",
          "[kernels][cuda]") {
  for (const bool fast : {false, true}) {
    const GemmProblem problem =
        scaled_gemm(ScaledProduct{.m = 16, .n = 32, .k = 48, .fast_accumulation = fast});
    GemmDescriptors d = describe(problem, false);
    CHECK(read<std::int8_t>(d, CUBLASLT_MATMUL_DESC_FAST_ACCUM) == (fast ? 1 : 0));
  }
  GemmDescriptors half = describe(plain_gemm(LinearInputGrad{.shape = {3, 4, 5},
                                                             .dtype = DType::BF16,
                                                             .dy_stride = 5,
                                                             .weight_stride = 4,
                                                             .dx_stride = 4}),
                                  false);
  CHECK(read<std::int8_t>(half, CUBLASLT_MATMUL_DESC_FAST_ACCUM) == 0);
}

}  // namespace meshplan::kernels::cuda::test
