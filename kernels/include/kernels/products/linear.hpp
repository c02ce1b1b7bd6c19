// Dense layers. Row-major; every matrix has an explicit row stride in elements, so that operands
// may be column ranges of fused buffers.
//
// T tokens, I input features, O output features.
#pragma once

#include <cstdint>
#include <optional>

#include "core/dtype.hpp"
#include "kernels/elementwise/activation.hpp"

namespace meshplan::kernels {

/// Sizes shared by the three products of one layer. Each costs 2 T I O FLOP.
struct LinearShape {
  std::int64_t tokens = 0;
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  bool operator==(const LinearShape&) const = default;
};

/// z = x weight^T [+ bias]; y = z, z + residual, or activation(z). All operands in `dtype` (F32 or
/// BF16), products summed in fp32. Traffic: (T I + O I + T O) elements, T O more where z is saved
/// or a residual is read; a backend that does not fuse the activation or the residual rounds z and
/// passes over y once more.
struct LinearForward {
  LinearShape shape;
  DType dtype = DType::F32;
  const void* x = nullptr;  // (T, I)
  std::int64_t x_stride = 0;
  const void* weight = nullptr;  // (O, I)
  std::int64_t weight_stride = 0;
  const void* bias = nullptr;  // (O), or null
  void* y = nullptr;           // (T, O)
  std::int64_t y_stride = 0;
  std::optional<ActivationKind> activation;
  void* pre_activation = nullptr;  // z (T, O), which the backward needs, or null; not y
  std::int64_t pre_activation_stride = 0;
  const void* residual = nullptr;  // (T, O), stride y_stride, or null; not y, nor with `activation`
};

/// dx = dy weight, or (dy weight) activation'(z) where this layer's x was activation(z). Operands
/// in `dtype`. Traffic: (T O + O I + T I) elements, T I more with an activation.
struct LinearInputGrad {
  LinearShape shape;
  DType dtype = DType::F32;
  const void* dy = nullptr;  // (T, O)
  std::int64_t dy_stride = 0;
  const void* weight = nullptr;  // (O, I)
  std::int64_t weight_stride = 0;
  void* dx = nullptr;  // (T, I)
  std::int64_t dx_stride = 0;
  std::optional<ActivationKind> activation;
  const void* pre_activation = nullptr;  // z (T, I), with `activation`; not dx
  std::int64_t pre_activation_stride = 0;
};

/// dweight (+)= dy^T x and dbias (+)= column sums of dy; both fp32, dy and x in `dtype`.
/// `accumulate` adds to what is there (micro-batches), otherwise overwrites.
/// Traffic: (T O + T I) elements + (1 or 2) O I 4 bytes.
struct LinearWeightGrad {
  LinearShape shape;
  DType dtype = DType::F32;
  const void* dy = nullptr;  // (T, O)
  std::int64_t dy_stride = 0;
  const void* x = nullptr;  // (T, I)
  std::int64_t x_stride = 0;
  float* dweight = nullptr;  // (O, I), or null to compute only dbias
  std::int64_t dweight_stride = 0;
  float* dbias = nullptr;  // (O), or null
  bool accumulate = false;
};

}  // namespace meshplan::kernels
