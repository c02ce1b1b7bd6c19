#pragma once

#include "kernels/mixers/gated_delta.hpp"
#include "kernels/mixers/gated_rms_norm.hpp"
#include "kernels/mixers/short_convolution.hpp"
#include "reference/matrix.hpp"

namespace meshplan::reference {

/// x (T, C), weight (C, K), bias (1, C) or empty; positions of all tokens, or empty
Matrix short_convolution(const kernels::ShortConvolutionShape& shape, const Matrix& x,
                         const Matrix& weight, const Matrix& bias,
                         const std::vector<std::int32_t>& positions);

/// x and z (T, G E), weight (1, E) or (1, G E)
Matrix gated_rms_norm(const kernels::GatedRmsNormShape& shape, const Matrix& x, const Matrix& z,
                      const Matrix& weight, double epsilon);

/// Operands of the gated delta rule.
struct GatedDeltaInputs {
  Matrix qkv;                                // (T, 2 Hk Ek + Hv Ev)
  Matrix ba;                                 // (T, 2 Hv)
  Matrix dt_bias;                            // (1, Hv)
  Matrix a_log;                              // (1, Hv)
  Matrix initial_state;                      // (B Hv Ek, Ev), or empty: 0
  std::vector<std::int32_t> positions = {};  // of all tokens, or empty
};

struct GatedDeltaOutputs {
  Matrix o;            // (T, Hv Ev)
  Matrix final_state;  // (B Hv Ek, Ev)
};

/// Token by token, as equation 10 has it.
GatedDeltaOutputs gated_delta(const kernels::GatedDeltaShape& shape,
                              const GatedDeltaInputs& inputs);

}  // namespace meshplan::reference
