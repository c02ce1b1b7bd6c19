#pragma once

#include <cstdint>
#include <vector>

#include "reference/matrix.hpp"

namespace meshplan::reference {

/// logits (T, V) of the whole vocabulary; a negative target is ignored (loss 0). With a soft cap c
/// > 0 a logit x stands for c tanh(x / c).
std::vector<double> cross_entropy(const Matrix& logits, const std::vector<std::int32_t>& targets,
                                  double softcap = 0);

/// d (scale * sum of losses) / d logits
Matrix cross_entropy_backward(const Matrix& logits, const std::vector<std::int32_t>& targets,
                              double scale, double softcap = 0);

}  // namespace meshplan::reference
