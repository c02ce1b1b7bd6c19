// Gemm as BLAS defines it: an element at a time on column-major matrices, from the GemmProblem
// alone.
#include "products/gemm.hpp"

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/error.hpp"
#include "cuda_on_cpu/block.hpp"

namespace meshplan::kernels::cuda {

namespace {

double load(const void* data, std::int64_t index, DType dtype) {
  if (dtype == DType::F32) return double{static_cast<const float*>(data)[index]};
  require_invariant(dtype == DType::BF16, "the emulated product takes fp32 and bf16");
  const std::uint32_t bits = static_cast<const std::uint16_t*>(data)[index];
  return double{std::bit_cast<float>(bits << 16)};
}

void store(void* data, std::int64_t index, DType dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::F32) {
    static_cast<float*>(data)[index] = single;
    return;
  }
  const auto word = std::bit_cast<std::uint32_t>(single);
  static_cast<std::uint16_t*>(data)[index] =
      static_cast<std::uint16_t>((word + 0x7fffU + (word >> 16 & 1U)) >> 16);
}

/// An FP8 number from its digits.
double load_float8(std::uint8_t code, Float8Format format) {
  const int mantissa_bits = format == Float8Format::E4M3 ? 3 : 2;
  const int bias = format == Float8Format::E4M3 ? 7 : 15;
  const int exponent = (code & 0x7f) >> mantissa_bits;
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const double fraction = mantissa / double(1 << mantissa_bits);
  const double size =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1.0 + fraction, exponent - bias);
  return (code & 0x80) != 0 ? -size : size;
}

double at(const void* data, const GemmMatrix& matrix, bool transpose, std::int64_t row,
          std::int64_t column) {
  const std::int64_t r = transpose ? column : row;
  const std::int64_t c = transpose ? row : column;
  require_invariant(r < matrix.rows && c < matrix.columns, "an element inside of its matrix");
  const std::int64_t index = c * matrix.leading_dim + r;
  if (matrix.float8)
    return load_float8(static_cast<const std::uint8_t*>(data)[index], *matrix.float8);
  return load(data, index, matrix.dtype);
}

/// What cuBLASLt's FP8 kernels ask for.
void require_float8_layout(const GemmProblem& p, const GemmPointers& pointers) {
  require_invariant(p.transpose_a && !p.transpose_b && p.a.float8 && p.b.float8, "FP8 is TN");
  require_invariant(p.m % 16 == 0 && p.n % 16 == 0 && p.k % 16 == 0, "multiples of 16");
  for (const void* data : {pointers.a, pointers.b, static_cast<const void*>(pointers.d)})
    require_invariant(reinterpret_cast<std::uintptr_t>(data) % 16 == 0, "aligned to 16 bytes");
}

double gelu_argument(double x) {
  return 0.7978845608028654 * (x + 0.044715 * x * x * x);
}
double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(gelu_argument(x)));
}
double gelu_slope(double x) {
  const double t = std::tanh(gelu_argument(x));
  return 0.5 * (1.0 + t) +
         0.5 * x * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * x * x);
}

double finish(const GemmProblem& p, const GemmPointers& pointers, double z, std::int64_t row,
              std::int64_t column) {
  if (reads_bias(p.epilogue)) z += load(pointers.vector, row, p.d.dtype);
  const std::int64_t aux_index = column * p.aux_leading_dim + row;
  switch (p.epilogue) {
    case GemmEpilogue::GeluAux:
    case GemmEpilogue::GeluAuxBias:
      store(const_cast<void*>(pointers.aux), aux_index, p.d.dtype, z);
      return gelu(z);
    case GemmEpilogue::Gelu:
    case GemmEpilogue::GeluBias:
      return gelu(z);
    case GemmEpilogue::Relu:
    case GemmEpilogue::ReluBias:
      return std::max(z, 0.0);
    case GemmEpilogue::DGelu:
      return z * gelu_slope(load(pointers.aux, aux_index, p.d.dtype));
    case GemmEpilogue::None:
    case GemmEpilogue::Bias:
    case GemmEpilogue::BiasGradB:
      return z;
  }
  return z;
}

void bias_grad(const GemmProblem& p, const GemmPointers& pointers) {
  for (std::int64_t column = 0; column < p.n; ++column) {
    double sum = 0.0;
    for (std::int64_t k = 0; k < p.k; ++k) sum += at(pointers.b, p.b, p.transpose_b, k, column);
    store(const_cast<void*>(pointers.vector), column, p.d.dtype, sum);
  }
}

}  // namespace

std::int64_t gemm_workspace_bytes(const Context& /*context*/) {
  return 1024;
}

class Gemm::Impl {};
Gemm::Gemm(const GemmOptions& /*options*/) {}
Gemm::~Gemm() = default;

bool Gemm::try_run(const Context& /*context*/, const GemmProblem& p, const GemmPointers& pointers,
                   std::span<std::byte> workspace) {
  require_invariant(
      reinterpret_cast<std::uintptr_t>(workspace.data()) % 256 == 0 && workspace.size() == 1024,
      "the workspace is aligned and whole");
  // A library has gaps: without the bias gradient of fp32 inputs, what stands in for it runs too.
  if (p.epilogue == GemmEpilogue::BiasGradB && p.b.dtype == DType::F32) return false;
  require_invariant(p.d.rows == p.m && p.d.columns == p.n && p.d.leading_dim >= p.m,
                    "the result has the problem's size");
  if (p.scaled) require_float8_layout(p, pointers);
  cuda_on_cpu::count_library_kernel();
  const double scale = p.scaled ? double{*pointers.a_scale} * double{*pointers.b_scale} : 1.0;
  for (std::int64_t column = 0; column < p.n; ++column) {
    for (std::int64_t row = 0; row < p.m; ++row) {
      double z = 0.0;
      for (std::int64_t k = 0; k < p.k; ++k)
        z += at(pointers.a, p.a, p.transpose_a, row, k) *
             at(pointers.b, p.b, p.transpose_b, k, column);
      z *= scale;
      const std::int64_t index = column * p.d.leading_dim + row;
      if (p.accumulate) z += load(pointers.d, index, p.d.dtype);
      if (p.adds_residual) z += load(pointers.c, index, p.d.dtype);
      store(pointers.d, index, p.d.dtype, finish(p, pointers, z, row, column));
    }
  }
  if (p.epilogue == GemmEpilogue::BiasGradB) bias_grad(p, pointers);
  return true;
}

// There is nothing to choose from.
void Gemm::set_tuning(GemmTuning /*tuning*/) {}
bool Gemm::misses_choices() const {
  return false;
}
const GemmChoices& Gemm::choices() const {
  static const GemmChoices none;
  return none;
}
void Gemm::adopt(const GemmChoices& /*choices*/) {}
std::string Gemm::library() {
  return "emulated";
}

void Gemm::run(const Context& context, const GemmProblem& problem, const GemmPointers& pointers,
               std::span<std::byte> workspace) {
  require_invariant(try_run(context, problem, pointers, workspace), "a plain product is supported");
}

}  // namespace meshplan::kernels::cuda
