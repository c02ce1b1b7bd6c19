#include "products/linear.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "elementwise/operators.hpp"
#include "kernels/cuda/check.hpp"
#include "products/linear_parts.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr std::int64_t kAlignment = 256;  // that cuBLASLt wants of its workspace

/// Scratch is aligned to 64 bytes only: the difference is asked for on top.
std::int64_t scratch_with(const Context& context, std::int64_t more_floats) {
  return kAlignment + gemm_workspace_bytes(context) + more_floats * size_of(DType::F32);
}

struct Scratch {
  std::span<std::byte> workspace;
  float* more = nullptr;
};
Scratch split_scratch(const Context& context, std::int64_t more_floats) {
  require_scratch(context, scratch_with(context, more_floats));
  const auto address = reinterpret_cast<std::uintptr_t>(context.scratch.data());
  const std::uintptr_t skip = (kAlignment - address % kAlignment) % kAlignment;
  const auto size = static_cast<std::size_t>(gemm_workspace_bytes(context));
  std::byte* begin = context.scratch.data() + skip;
  return {{begin, size}, reinterpret_cast<float*>(begin + size)};
}

void require_sizes(const LinearShape& shape) {
  require_invariant(shape.tokens >= 0 && shape.in_features > 0 && shape.out_features > 0,
                    "a layer has features");
}

void zero(const Context& context, float* rows, std::int64_t count, std::int64_t columns,
          std::int64_t stride) {
  const auto bytes = static_cast<std::size_t>(columns) * sizeof(float);
  for (std::int64_t row = 0; row < count; ++row)
    check(cudaMemsetAsync(rows + row * stride, 0, bytes, context.stream), "cudaMemsetAsync");
}

}  // namespace

std::int64_t LinearKernels::scratch_bytes(const Context& context, const LinearForward& /*op*/) {
  return scratch_with(context, 0);
}
std::int64_t LinearKernels::scratch_bytes(const Context& context, const LinearInputGrad& /*op*/) {
  return scratch_with(context, 0);
}
std::int64_t LinearKernels::scratch_bytes(const Context& context, const LinearWeightGrad& op) {
  return scratch_with(context, op.dbias != nullptr ? bias_grad_floats(op.shape) : 0);
}

void LinearKernels::run(const Context& context, const LinearForward& op) {
  require_sizes(op.shape);
  require_invariant(op.residual == nullptr || !op.activation,
                    "a product ends in an activation or in a sum");
  const Scratch scratch = split_scratch(context, 0);
  if (op.shape.tokens == 0) return;
  const auto fused = fused_gemm(op);
  if (fused && gemm_.try_run(context, *fused, gemm_pointers(op), scratch.workspace)) return;
  LinearForward product = op;
  if (op.activation && op.pre_activation != nullptr) {
    product.y = op.pre_activation;
    product.y_stride = op.pre_activation_stride;
  }
  gemm_.run(context, plain_gemm(product), gemm_pointers(product), scratch.workspace);
  if (op.residual != nullptr) {
    require_invariant(op.y_stride == op.shape.out_features, "a sum beside its product is dense");
    enqueue(context, Add{.count = op.shape.tokens * op.shape.out_features,
                         .dtype = op.dtype,
                         .a = op.residual,
                         .b = op.y,
                         .sum = op.y});
  }
  if (op.activation)
    enqueue(context, ActivationRows{.kind = *op.activation,
                                    .rows = op.shape.tokens,
                                    .columns = op.shape.out_features,
                                    .dtype = op.dtype,
                                    .x = product.y,
                                    .x_stride = product.y_stride,
                                    .y = op.y,
                                    .y_stride = op.y_stride});
}

void LinearKernels::run(const Context& context, const LinearInputGrad& op) {
  require_sizes(op.shape);
  require_invariant(!op.activation || op.pre_activation != nullptr,
                    "an activation's gradient needs its input");
  const Scratch scratch = split_scratch(context, 0);
  if (op.shape.tokens == 0) return;
  const auto fused = fused_gemm(op);
  if (fused && gemm_.try_run(context, *fused, gemm_pointers(op), scratch.workspace)) return;
  gemm_.run(context, plain_gemm(op), gemm_pointers(op), scratch.workspace);
  if (op.activation)
    enqueue(context, ActivationRows{.kind = *op.activation,
                                    .rows = op.shape.tokens,
                                    .columns = op.shape.in_features,
                                    .dtype = op.dtype,
                                    .dy = op.dx,
                                    .dy_stride = op.dx_stride,
                                    .x = op.pre_activation,
                                    .x_stride = op.pre_activation_stride,
                                    .y = op.dx,
                                    .y_stride = op.dx_stride});
}

void LinearKernels::run(const Context& context, const LinearWeightGrad& op) {
  require_sizes(op.shape);
  const auto& [tokens, in, out] = op.shape;
  const Scratch scratch =
      split_scratch(context, op.dbias != nullptr ? bias_grad_floats(op.shape) : 0);
  if (tokens == 0) {
    if (op.accumulate) return;
    if (op.dweight != nullptr) zero(context, op.dweight, out, in, op.dweight_stride);
    if (op.dbias != nullptr) zero(context, op.dbias, 1, out, out);
    return;
  }
  if (op.dweight != nullptr && op.dbias != nullptr) {
    // The epilogue overwrites: what is to be added goes through scratch.
    GemmPointers pointers = gemm_pointers(op);
    if (op.accumulate) pointers.vector = scratch.more;
    if (gemm_.try_run(context, plain_gemm(op, true), pointers, scratch.workspace)) {
      if (op.accumulate) enqueue_add_row(context, scratch.more, out, op.dbias, true);
      return;
    }
  }
  if (op.dweight != nullptr)
    gemm_.run(context, plain_gemm(op, false), gemm_pointers(op), scratch.workspace);
  if (op.dbias != nullptr) enqueue_bias_grad(context, op, scratch.more);
}

std::int64_t LinearKernels::scratch_bytes(const Context& context, const ScaledProduct& /*op*/) {
  return scratch_with(context, 0);
}

void LinearKernels::run(const Context& context, const ScaledProduct& op) {
  constexpr int kFirstWithFloat8 = 89;  // Ada; then Hopper
  if (context.compute_capability < kFirstWithFloat8)
    throw ConfigError(fmt::format(
        "FP8 products need a GPU of compute capability 8.9 or later, this one has {}.{}: use bf16",
        context.compute_capability / 10, context.compute_capability % 10));
  const Scratch scratch = split_scratch(context, 0);
  gemm_.run(context, scaled_gemm(op), gemm_pointers(op), scratch.workspace);
}

}  // namespace meshplan::kernels::cuda
