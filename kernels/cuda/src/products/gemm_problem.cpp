#include "products/gemm_problem.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <string_view>

#include "core/error.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr std::uint64_t kMostAlignment = 256;

/// The row-major (rows, columns) matrix with row stride `stride` as cuBLASLt sees it.
GemmMatrix column_major(std::int64_t rows, std::int64_t columns, std::int64_t stride, DType dtype) {
  require_invariant(stride >= columns || rows <= 1, "a matrix's row stride covers its columns");
  return {
      .rows = columns, .columns = rows, .leading_dim = std::max(stride, columns), .dtype = dtype};
}

std::string_view name_of_float8(const GemmMatrix& matrix) {
  return matrix.float8 == Float8Format::E5M2 ? "e5m2" : "e4m3";
}

bool aux_is_aligned(const void* data, std::int64_t stride) {
  return stride % 8 == 0 && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

}  // namespace

std::int64_t gemm_alignment(const void* data, std::int64_t leading_dim, DType dtype) {
  const auto bits = reinterpret_cast<std::uintptr_t>(data) |
                    static_cast<std::uintptr_t>(leading_dim * size_of(dtype)) | kMostAlignment;
  return static_cast<std::int64_t>(bits & (~bits + 1));
}

std::string describe_in_words(const GemmProblem& p) {
  constexpr std::array kNames = {"none",     "bias",          "gelu", "gelu+bias",
                                 "gelu+aux", "gelu+aux+bias", "relu", "relu+bias",
                                 "dgelu",    "bias gradient"};
  const std::string input = p.scaled
                                ? fmt::format("{} x {}", name_of_float8(p.a), name_of_float8(p.b))
                                : std::string(name_of(p.a.dtype));
  return fmt::format("m {} n {} k {} {} {}{}{} -> {}{} epilogue {}", p.m, p.n, p.k, input,
                     p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N',
                     p.fast_accumulation ? " fast" : "", name_of(p.d.dtype),
                     p.accumulate      ? " accumulating"
                     : p.adds_residual ? " + residual"
                                       : "",
                     kNames.at(static_cast<std::size_t>(p.epilogue)));
}

GemmProblem plain_gemm(const LinearForward& op) {
  const auto& [tokens, in, out] = op.shape;
  return {.m = out,
          .n = tokens,
          .k = in,
          .transpose_a = true,
          .a = column_major(out, in, op.weight_stride, op.dtype),
          .b = column_major(tokens, in, op.x_stride, op.dtype),
          .d = column_major(tokens, out, op.y_stride, op.dtype),
          .epilogue = op.bias != nullptr ? GemmEpilogue::Bias : GemmEpilogue::None};
}

GemmProblem plain_gemm(const LinearInputGrad& op) {
  const auto& [tokens, in, out] = op.shape;
  return {.m = in,
          .n = tokens,
          .k = out,
          .a = column_major(out, in, op.weight_stride, op.dtype),
          .b = column_major(tokens, out, op.dy_stride, op.dtype),
          .d = column_major(tokens, in, op.dx_stride, op.dtype)};
}

GemmProblem plain_gemm(const LinearWeightGrad& op, bool with_bias_grad) {
  const auto& [tokens, in, out] = op.shape;
  return {.m = in,
          .n = out,
          .k = tokens,
          .transpose_b = true,
          .a = column_major(tokens, in, op.x_stride, op.dtype),
          .b = column_major(tokens, out, op.dy_stride, op.dtype),
          .d = column_major(out, in, op.dweight_stride, DType::F32),
          .epilogue = with_bias_grad ? GemmEpilogue::BiasGradB : GemmEpilogue::None,
          .accumulate = op.accumulate};
}

GemmProblem scaled_gemm(const ScaledProduct& op) {
  require_invariant(op.m > 0 && op.n > 0 && op.k > 0 && op.m % kFloat8Multiple == 0 &&
                        op.n % kFloat8Multiple == 0 && op.k % kFloat8Multiple == 0,
                    "sizes of an FP8 product are multiples of 16");
  require_invariant(op.a_format == Float8Format::E4M3 || op.b_format == Float8Format::E4M3,
                    "at most one operand of a product is E5M2");
  require_invariant(!op.accumulate || (op.out_dtype == DType::F32 && op.bias == nullptr),
                    "sums are added up in fp32, without a bias");
  GemmProblem problem{.m = op.n,
                      .n = op.m,
                      .k = op.k,
                      .transpose_a = true,
                      .a = column_major(op.n, op.k, op.k, DType::U8),
                      .b = column_major(op.m, op.k, op.k, DType::U8),
                      .d = column_major(op.m, op.n, op.n, op.out_dtype),
                      .epilogue = op.bias != nullptr ? GemmEpilogue::Bias : GemmEpilogue::None,
                      .accumulate = op.accumulate,
                      .scaled = true,
                      .fast_accumulation = op.fast_accumulation};
  problem.a.float8 = op.b_format;
  problem.b.float8 = op.a_format;
  return problem;
}

std::optional<GemmProblem> fused_gemm(const LinearForward& op) {
  if (!op.activation && op.residual == nullptr) return std::nullopt;
  const bool bias = op.bias != nullptr;
  GemmProblem problem = plain_gemm(op);
  if (op.residual != nullptr) {
    problem.adds_residual = true;
    return problem;
  }
  if (op.activation == ActivationKind::Relu && op.pre_activation == nullptr) {
    problem.epilogue = bias ? GemmEpilogue::ReluBias : GemmEpilogue::Relu;
    return problem;
  }
  if (op.activation != ActivationKind::GeluTanh) return std::nullopt;
  if (op.pre_activation == nullptr) {
    problem.epilogue = bias ? GemmEpilogue::GeluBias : GemmEpilogue::Gelu;
    return problem;
  }
  if (!aux_is_aligned(op.pre_activation, op.pre_activation_stride)) return std::nullopt;
  problem.epilogue = bias ? GemmEpilogue::GeluAuxBias : GemmEpilogue::GeluAux;
  problem.aux_leading_dim = op.pre_activation_stride;
  return problem;
}

std::optional<GemmProblem> fused_gemm(const LinearInputGrad& op) {
  if (op.activation != ActivationKind::GeluTanh ||
      !aux_is_aligned(op.pre_activation, op.pre_activation_stride))
    return std::nullopt;
  GemmProblem problem = plain_gemm(op);
  problem.epilogue = GemmEpilogue::DGelu;
  problem.aux_leading_dim = op.pre_activation_stride;
  return problem;
}

GemmPointers gemm_pointers(const LinearForward& op) {
  return {.a = op.weight,
          .b = op.x,
          .d = op.y,
          .c = op.residual,
          .vector = op.bias,
          .aux = op.pre_activation};
}
GemmPointers gemm_pointers(const LinearInputGrad& op) {
  return {.a = op.weight, .b = op.dy, .d = op.dx, .aux = op.pre_activation};
}
GemmPointers gemm_pointers(const LinearWeightGrad& op) {
  return {.a = op.x, .b = op.dy, .d = op.dweight, .vector = op.dbias};
}

GemmPointers gemm_pointers(const ScaledProduct& op) {
  return {.a = op.b,
          .b = op.a,
          .d = op.out,
          .vector = op.bias,
          .a_scale = op.b_scale,
          .b_scale = op.a_scale};
}

}  // namespace meshplan::kernels::cuda
