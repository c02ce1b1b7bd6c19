// RMS norm of groups of a row, with a gate: silu(z) multiplies what the norm gives (gated delta
// net: Yang, Kautz, Hatamizadeh 2024, section 3.4) or what it gets (Mamba 2: Dao & Gu 2024, section
// 7.1).
//
// T tokens, G groups of a row, E elements of a group: heads of d_v elements, or d_inner / n_groups.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

enum class GateOrder { NormThenGate, GateThenNorm };

struct GatedRmsNormShape {
  std::int64_t tokens = 0;  // T
  std::int64_t groups = 1;  // G
  std::int64_t size = 0;    // E
  GateOrder order = GateOrder::NormThenGate;
  bool shared_weight = true;  // one weight (E) for all groups; else (G E)
  std::int64_t columns() const { return groups * size; }
  std::int64_t weights() const { return shared_weight ? size : columns(); }
  bool operator==(const GatedRmsNormShape&) const = default;
};

/// NormThenGate: inv_rms = 1 / sqrt(mean(x^2) + epsilon), y = x inv_rms weight silu(z).
/// GateThenNorm: h = x silu(z), inv_rms = 1 / sqrt(mean(h^2) + epsilon), y = h inv_rms weight.
/// Means over a group. Traffic: 3 T G E elements.
struct GatedRmsNormForward {
  GatedRmsNormShape shape;
  float epsilon = 0.0F;
  DType dtype = DType::F32;
  const void* x = nullptr;  // (T, G E)
  std::int64_t x_stride = 0;
  const void* z = nullptr;  // (T, G E)
  std::int64_t z_stride = 0;
  const void* weight = nullptr;  // (E) or (G E)
  void* y = nullptr;             // (T, G E); may be x or z
  std::int64_t y_stride = 0;
  float* inv_rms = nullptr;  // (T, G)
};

/// With n what the norm gives before its weight and dn the gradient of it, the gradient of what it
/// gets is inv_rms (dn - n mean(dn n)). NormThenGate: dn = dy weight silu(z), dz = dy n weight
/// silu'(z), dweight (+)= sum of dy n silu(z). GateThenNorm: dn = dy weight, dweight (+)= sum of dy
/// n; h passes its gradient dh on: dx = dh silu(z), dz = dh x silu'(z). dweight sums in fp32, in an
/// order that depends on the sizes alone. A null dweight is not computed, and neither are dx and
/// dz if both are null. Traffic: 5 T G E elements.
struct GatedRmsNormBackward {
  GatedRmsNormShape shape;
  DType dtype = DType::F32;
  const void* dy = nullptr;  // (T, G E)
  std::int64_t dy_stride = 0;
  const void* x = nullptr;  // (T, G E)
  std::int64_t x_stride = 0;
  const void* z = nullptr;  // (T, G E)
  std::int64_t z_stride = 0;
  const void* weight = nullptr;    // (E) or (G E)
  const float* inv_rms = nullptr;  // (T, G)
  void* dx = nullptr;              // (T, G E)
  std::int64_t dx_stride = 0;
  void* dz = nullptr;  // (T, G E)
  std::int64_t dz_stride = 0;
  float* dweight = nullptr;  // (E) or (G E), or null
  bool accumulate = false;   // of dweight
};

}  // namespace meshplan::kernels
