#pragma once

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

}  // namespace meshplan::reference
