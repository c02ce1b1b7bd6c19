#include "reference/cross_entropy.hpp"

#include <cmath>

namespace meshplan::reference {

std::vector<double> cross_entropy(const Matrix& logits, const std::vector<std::int32_t>& targets) {
  std::vector<double> losses(targets.size());
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    const std::int32_t target = targets[static_cast<std::size_t>(t)];
    if (target < 0) continue;
    double sum = 0.0;
    for (std::int64_t i = 0; i < logits.columns; ++i) sum += std::exp(logits(t, i));
    losses[static_cast<std::size_t>(t)] = std::log(sum) - logits(t, target);
  }
  return losses;
}

Matrix cross_entropy_backward(const Matrix& logits, const std::vector<std::int32_t>& targets,
                              double scale) {
  Matrix dlogits(logits.rows, logits.columns);
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    const std::int32_t target = targets[static_cast<std::size_t>(t)];
    if (target < 0) continue;
    double sum = 0.0;
    for (std::int64_t i = 0; i < logits.columns; ++i) sum += std::exp(logits(t, i));
    for (std::int64_t i = 0; i < logits.columns; ++i)
      dlogits(t, i) = scale * (std::exp(logits(t, i)) / sum - (i == target ? 1.0 : 0.0));
  }
  return dlogits;
}

}  // namespace meshplan::reference
