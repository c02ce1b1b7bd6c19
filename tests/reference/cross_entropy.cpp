#include "reference/cross_entropy.hpp"

#include <cmath>

namespace meshplan::reference {

namespace {

double capped(double logit, double softcap) {
  return softcap > 0 ? softcap * std::tanh(logit / softcap) : logit;
}

}  // namespace

std::vector<double> cross_entropy(const Matrix& logits, const std::vector<std::int32_t>& targets,
                                  double softcap) {
  std::vector<double> losses(targets.size());
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    const std::int32_t target = targets[static_cast<std::size_t>(t)];
    if (target < 0) continue;
    double sum = 0.0;
    for (std::int64_t i = 0; i < logits.columns; ++i)
      sum += std::exp(capped(logits(t, i), softcap));
    losses[static_cast<std::size_t>(t)] = std::log(sum) - capped(logits(t, target), softcap);
  }
  return losses;
}

Matrix cross_entropy_backward(const Matrix& logits, const std::vector<std::int32_t>& targets,
                              double scale, double softcap) {
  Matrix dlogits(logits.rows, logits.columns);
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    const std::int32_t target = targets[static_cast<std::size_t>(t)];
    if (target < 0) continue;
    double sum = 0.0;
    for (std::int64_t i = 0; i < logits.columns; ++i)
      sum += std::exp(capped(logits(t, i), softcap));
    for (std::int64_t i = 0; i < logits.columns; ++i) {
      const double probability = std::exp(capped(logits(t, i), softcap)) / sum;
      const double cosh = softcap > 0 ? std::cosh(logits(t, i) / softcap) : 1.0;
      dlogits(t, i) = scale * (probability - (i == target ? 1.0 : 0.0)) / (cosh * cosh);
    }
  }
  return dlogits;
}

}  // namespace meshplan::reference
