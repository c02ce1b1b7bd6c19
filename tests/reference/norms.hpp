#pragma once

#include "reference/matrix.hpp"

namespace meshplan::reference {

struct NormGrads {
  Matrix dx;       // (T, D)
  Matrix dweight;  // (1, D)
  Matrix dbias;    // (1, D), layer norm only
};

/// x (T, D), weight (1, D)
Matrix rms_norm(const Matrix& x, const Matrix& weight, double epsilon);
NormGrads rms_norm_backward(const Matrix& dy, const Matrix& x, const Matrix& weight,
                            double epsilon);

/// bias (1, D) or empty
Matrix layer_norm(const Matrix& x, const Matrix& weight, const Matrix& bias, double epsilon);
NormGrads layer_norm_backward(const Matrix& dy, const Matrix& x, const Matrix& weight,
                              double epsilon);

}  // namespace meshplan::reference
