#pragma once

#include "reference/matrix.hpp"

namespace meshplan::reference {

/// x (T, I), weight (O, I), bias (1, O) or empty -> (T, O)
Matrix linear(const Matrix& x, const Matrix& weight, const Matrix& bias = {});

/// dy (T, O), weight (O, I) -> (T, I)
Matrix linear_input_grad(const Matrix& dy, const Matrix& weight);

/// dy (T, O), x (T, I) -> (O, I)
Matrix linear_weight_grad(const Matrix& dy, const Matrix& x);

/// dy (T, O) -> (1, O)
Matrix column_sums(const Matrix& dy);

}  // namespace meshplan::reference
