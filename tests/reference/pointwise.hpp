#pragma once

#include "kernels/elementwise/activation.hpp"
#include "reference/matrix.hpp"

namespace meshplan::reference {

double activation(kernels::ActivationKind kind, double x);
double activation_slope(kernels::ActivationKind kind, double x);

/// x (T, 2 F) = [gate | up] -> (T, F)
Matrix gated_activation(kernels::ActivationKind kind, const Matrix& x);
Matrix gated_activation_backward(kernels::ActivationKind kind, const Matrix& dy, const Matrix& x);

/// Rotates each of the heads of row t by `position[t]`, as complex numbers (x[i], x[i + R/2]).
Matrix rope(const Matrix& x, const std::vector<std::int64_t>& positions, int head_size,
            int rope_size, double base);

}  // namespace meshplan::reference
