// A matrix product as cuBLASLt is asked for it, as plain data: which layouts, transpositions and
// epilogue a dense layer's operation becomes. No CUDA here, so that it is tested without a GPU.
//
// cuBLASLt is column-major: d = op(a) op(b), d (m, n), op(a) (m, k), op(b) (k, n). A row-major (r,
// c) matrix with row stride s is, without moving anything, the column-major (c, r) matrix with
// leading dimension s. So what we call y = x w^T is computed as y^T = w x^T.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "core/dtype.hpp"
#include "kernels/products/float8.hpp"
#include "kernels/products/linear.hpp"

namespace meshplan::kernels::cuda {

/// A column-major matrix in memory, before any transposition.
struct GemmMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t leading_dim = 0;  // elements from one column to the next, >= rows
  DType dtype = DType::F32;
  std::optional<Float8Format> float8 = std::nullopt;  // of the bytes, with DType::U8
  auto operator<=>(const GemmMatrix&) const = default;
};

/// What happens to the sums before they are stored. z = op(a) op(b) [+ bias over the rows of d].
enum class GemmEpilogue {
  None,
  Bias,      // d = z
  Gelu,      // d = gelu_tanh(z), no bias
  GeluBias,  // d = gelu_tanh(z)
  GeluAux,   // the same two, and aux = z
  GeluAuxBias,
  Relu,  // d = max(z, 0)
  ReluBias,
  DGelu,      // d = z gelu_tanh'(aux)
  BiasGradB,  // d = z, and vector[j] = sum over k of op(b)(k, j): columns of d
};

constexpr bool reads_bias(GemmEpilogue e) {
  return e == GemmEpilogue::Bias || e == GemmEpilogue::GeluBias || e == GemmEpilogue::GeluAuxBias ||
         e == GemmEpilogue::ReluBias;
}
/// Has a vector operand, read or written.
constexpr bool has_vector(GemmEpilogue e) {
  return reads_bias(e) || e == GemmEpilogue::BiasGradB;
}
constexpr bool has_aux(GemmEpilogue e) {
  return e == GemmEpilogue::GeluAux || e == GemmEpilogue::GeluAuxBias || e == GemmEpilogue::DGelu;
}

struct GemmProblem {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  GemmMatrix a, b, d;
  GemmEpilogue epilogue = GemmEpilogue::None;
  std::int64_t aux_leading_dim = 0;
  bool accumulate = false;     // d += rather than d =
  bool adds_residual = false;  // d = z + c, where c lies like d
  bool scaled = false;         // a and b are FP8 numbers times one scale each, read on the device
  bool fast_accumulation = false;  // of `scaled`; see ScaledProduct
  auto operator<=>(const GemmProblem&) const = default;
};

/// What the product is added to, if it is.
constexpr bool reads_addend(const GemmProblem& p) {
  return p.accumulate || p.adds_residual;
}

/// The operands of one call, in the names of GemmProblem.
struct GemmPointers {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const void* c = nullptr;       // with `adds_residual`
  const void* vector = nullptr;  // the bias, or where its gradient goes
  const void* aux = nullptr;
  const float* a_scale = nullptr;
  const float* b_scale = nullptr;
};

/// The strictest power of two, at most 256, that divides address and leading dimension in bytes:
/// what cuBLASLt's kernels may assume.
std::int64_t gemm_alignment(const void* data, std::int64_t leading_dim, DType dtype);

/// The plain product of a layer's operation: without activation or residual, and with the bias
/// gradient of LinearWeightGrad only if it is asked for by `with_bias_grad`.
GemmProblem plain_gemm(const LinearForward& op);
GemmProblem plain_gemm(const LinearInputGrad& op);
GemmProblem plain_gemm(const LinearWeightGrad& op, bool with_bias_grad);
/// cuBLASLt's FP8 kernels want the first operand transposed and the second not ("TN"), every size a
/// multiple of 16 and addresses of 16 bytes (cuBLAS library guide, cublasLtMatmul). Ours come so.
GemmProblem scaled_gemm(const ScaledProduct& op);

/// The product with the operation's activation or residual in its epilogue, where cuBLASLt has such
/// a one: a sum, tanh GELU, and ReLU whose input is not kept. Exact GELU, SiLU and squared ReLU it
/// has not. Constraint: the saved input's leading dimension is a multiple of 8 and its address of
/// 16 bytes.
std::optional<GemmProblem> fused_gemm(const LinearForward& op);
std::optional<GemmProblem> fused_gemm(const LinearInputGrad& op);

/// "m 512 n 64 k 512 bf16 TN -> bf16 epilogue gelu+aux+bias": how messages name a problem.
std::string describe_in_words(const GemmProblem& problem);

GemmPointers gemm_pointers(const LinearForward& op);
GemmPointers gemm_pointers(const LinearInputGrad& op);
GemmPointers gemm_pointers(const LinearWeightGrad& op);
GemmPointers gemm_pointers(const ScaledProduct& op);

}  // namespace meshplan::kernels::cuda
