// Which of cuBLASLt's kernels a product takes, with stand-ins for the calls that need a GPU: they
// come before the library's own, being in the program.
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda_error.hpp"
#include "library/library_checks.hpp"
#include "products/gemm.hpp"
#include "products/gemm_problem.hpp"

namespace {

struct FakeLt {
  int asked = 0;  // heuristics
  std::vector<std::uint64_t> offered = {1, 2, 3};
  std::map<std::uint64_t, cublasStatus_t> fails;
  std::vector<std::uint64_t> ran;
  std::map<std::uint64_t, float> milliseconds;
};
FakeLt& fake() {
  static FakeLt lt;
  return lt;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int object = 0;
  *handle = reinterpret_cast<cublasLtHandle_t>(&object);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t /*handle*/) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t /*operation*/, cublasLtMatrixLayout_t /*a*/,
    cublasLtMatrixLayout_t /*b*/, cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t /*d*/,
    cublasLtMatmulPreference_t /*preference*/, int most, cublasLtMatmulHeuristicResult_t results[],
    int* count) {
  ++fake().asked;
  *count = 0;
  for (const std::uint64_t kernel : fake().offered) {
    if (*count == most) break;
    results[*count] = {};
    results[*count].algo.data[0] = kernel;
    results[(*count)++].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t /*operation*/,
                              const void* /*alpha*/, const void* /*a*/,
                              cublasLtMatrixLayout_t /*a_layout*/, const void* /*b*/,
                              cublasLtMatrixLayout_t /*b_layout*/, const void* /*beta*/,
                              const void* /*c*/, cublasLtMatrixLayout_t /*c_layout*/, void* /*d*/,
                              cublasLtMatrixLayout_t /*d_layout*/,
                              const cublasLtMatmulAlgo_t* algorithm, void* /*workspace*/,
                              std::size_t /*bytes*/, cudaStream_t /*stream*/) {
  const std::uint64_t kernel = algorithm->data[0];
  const auto fails = fake().fails.find(kernel);
  if (fails != fake().fails.end()) return fails->second;
  fake().ran.push_back(kernel);
  return CUBLAS_STATUS_SUCCESS;
}

// Time passes as the kernel that ran last says.
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  static int object = 0;
  *event = reinterpret_cast<cudaEvent_t>(&object);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t /*event*/) {
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t /*event*/, cudaStream_t /*stream*/) {
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t /*event*/) {
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t /*begin*/, cudaEvent_t /*end*/) {
  *ms = fake().milliseconds[fake().ran.back()];
  return cudaSuccess;
}

namespace meshplan::kernels::cuda::test {

using Catch::Matchers::Contains;

namespace {

struct Product {
  Product() { fake() = {}; }
  bool run() { return gemm.try_run(context, plain_gemm(op), gemm_pointers(op), {}); }

  alignas(
      256) std::array<float, 16> memory{};  // choices are by alignment: the same in every object
  Context context = {};
  LinearForward op{.shape = {3, 4, 8},
                   .dtype = DType::BF16,
                   .x = memory.data(),
                   .x_stride = 8,
                   .weight = memory.data(),
                   .weight_stride = 16,
                   .y = memory.data(),
                   .y_stride = 24};
  std::string said;
  Gemm gemm{{.log = [this](const std::string& line) { said += line + "\n"; }}};
};

}  // namespace

TEST_CASE("A kernel that fails although it was offered gives its place to the next, for good",
          "[kernels][cuda]") {
  Product product;
  fake().fails = {{1, CUBLAS_STATUS_NOT_SUPPORTED}, {2, CUBLAS_STATUS_INVALID_VALUE}};
  CHECK(product.run());
  CHECK_THAT(product.said,
             Contains("CUBLAS_STATUS_NOT_SUPPORTED") && Contains("CUBLAS_STATUS_INVALID_VALUE"));
  product.said.clear();
  CHECK(product.run());
  CHECK(product.said.empty());  // not tried again
  CHECK(fake().asked == 1);
  CHECK(fake().ran == std::vector<std::uint64_t>{3, 3});
}

TEST_CASE("A product of which every kernel fails has none", "[kernels][cuda]") {
  Product product;
  for (const std::uint64_t kernel : fake().offered)
    fake().fails[kernel] = CUBLAS_STATUS_NOT_SUPPORTED;
  CHECK_FALSE(product.run());
  CHECK_FALSE(product.run());
  CHECK(fake().asked == 1);
}

TEST_CASE("A kernel that breaks is an error, and no other takes its place", "[kernels][cuda]") {
  Product product;
  fake().fails = {{1, CUBLAS_STATUS_EXECUTION_FAILED}};
  CHECK_THROWS_AS(product.run(), CudaError);
  CHECK(fake().ran.empty());
}

TEST_CASE("The fastest kernel is chosen by its time, once, and runs from then on",
          "[kernels][cuda]") {
  Product product;
  fake().milliseconds = {{1, 5.0F}, {2, 3.0F}, {3, 4.0F}};
  product.gemm.set_tuning(GemmTuning::List);
  CHECK(product.run());
  CHECK(product.gemm.misses_choices());
  CHECK(fake().ran.empty());
  product.gemm.set_tuning(GemmTuning::Time);
  CHECK(product.run());
  CHECK(product.run());
  CHECK(fake().ran.size() == 3 * 6);  // a first run and five that count
  product.gemm.set_tuning(GemmTuning::List);
  CHECK(product.run());
  CHECK_FALSE(product.gemm.misses_choices());
  product.gemm.set_tuning(GemmTuning::Off);
  fake().ran.clear();
  CHECK(product.run());
  CHECK(fake().ran == std::vector<std::uint64_t>{2});
}

TEST_CASE("A choice made elsewhere is taken over, and gives way if it fails", "[kernels][cuda]") {
  GemmChoices choices;
  {
    Product product;
    fake().milliseconds = {{1, 5.0F}, {2, 3.0F}, {3, 4.0F}};
    product.gemm.set_tuning(GemmTuning::Time);
    CHECK(product.run());
    choices = product.gemm.choices();
  }
  Product product;
  CHECK(product.run());  // as heuristics say
  CHECK(fake().ran == std::vector<std::uint64_t>{1});
  product.gemm.adopt(choices);
  CHECK(product.run());
  CHECK(fake().ran == std::vector<std::uint64_t>{1, 2});
  Product other;
  other.gemm.adopt(choices);
  fake().fails = {{2, CUBLAS_STATUS_NOT_SUPPORTED}};
  CHECK(other.run());
  CHECK(fake().ran == std::vector<std::uint64_t>{1});
  CHECK_THAT(other.said, Contains("CUBLAS_STATUS_NOT_SUPPORTED"));
}

TEST_CASE("A product of other sizes, alignments or precision is another choice",
          "[kernels][cuda]") {
  Product product;
  product.gemm.set_tuning(GemmTuning::Time);
  CHECK(product.run());
  ++product.op.shape.tokens;
  CHECK(product.run());
  product.op.x_stride = 16;
  CHECK(product.run());
  CHECK(product.gemm.choices().of_problem.size() == 3);
}

// Bytes: a kernel may read the residual as wide as its address allows, so that one chosen for an
// aligned residual must not read another.
TEST_CASE("A residual that is less aligned is another choice", "[kernels][cuda]") {
  Product product;
  product.op.residual = product.memory.data();
  const auto run = [&] {
    return product.gemm.try_run(product.context, fused_gemm(product.op).value(),
                                gemm_pointers(product.op), {});
  };
  CHECK(run());  // rows of 48 bytes: y and residual are aligned to 16
  product.op.residual = product.memory.data() + 1;  // to 4
  CHECK(run());
  CHECK(fake().asked == 2);
  product.op.residual = product.memory.data() + 2;  // to 8
  product.gemm.set_tuning(GemmTuning::Time);
  CHECK(run());
  REQUIRE(product.gemm.choices().of_problem.size() == 1);
  CHECK_THAT(product.gemm.choices().of_problem.begin()->first, Contains("align 32 16 8 16 0 0"));
}

}  // namespace meshplan::kernels::cuda::test
