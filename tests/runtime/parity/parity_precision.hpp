// How far 16-bit runs may lie apart.
#pragma once

#include <cmath>

#include "runtime/parity/parity_fixture.hpp"

namespace meshplan::test {

/// bf16 rounds to 8 significant bits, fp16 to 11: by at most u = 2^-8 or 2^-11 of the value.
inline double unit_roundoff(DType precision) {
  return precision == DType::BF16 ? 0x1p-8 : 0x1p-11;
}

/// Rounding is about 0.4 u in the root mean square. Between the loss and the weights of the first
/// layer lie, of each layer, 11 tensors that the forward pass rounds (norms, projections, rotation,
/// attention, activation, sums) and as many gradients; a plan of tp ranks also rounds every partial
/// sum before it is added: 4 times tp in a layer, two sums each way. Once an input differs in one
/// bit, the two runs round everything after it independently, so N tensors make a relative error of
/// at most sqrt(2 N) 0.4 u: at most, for each changes only its branch, while the residual stream
/// carries most of the signal. Gradients themselves are summed in fp32: their reduction lengths add
/// nothing.
inline double half_tolerance(DType precision, const models::ModelSpec& model, int tp) {
  constexpr double kRoundedInALayer = 22;
  const double rounded = model.num_layers * (kRoundedInALayer + 4.0 * (tp > 1 ? tp : 0));
  return std::sqrt(2 * rounded) * 0.4 * unit_roundoff(precision);
}

/// How far two runs may differ whose tensors are quantized apart. E4M3 has 4 significant bits, E5M2
/// 3: rounding is about 0.4 u in the root mean square, u = 2^-4 and 2^-3. A linear rounds x and w
/// to E4M3 and dy to E5M2, which counts as four of E4M3: 6 a linear; a sum of products has the
/// relative error of its terms. So as half_tolerance().
inline double float8_tolerance(int num_layers, int linears_in_a_layer = 4) {
  constexpr double kRoundedInALinear = 6;
  return std::sqrt(2 * kRoundedInALinear * linears_in_a_layer * num_layers) * 0.4 * 0x1p-4;
}

/// Below this part of the global norm a gradient is mostly what cancellation left of it.
constexpr double kSmallInHalf = 1e-2;

}  // namespace meshplan::test
