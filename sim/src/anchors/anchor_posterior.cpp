#include "sim/anchors/anchor_posterior.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::sim {
namespace {

constexpr int kMostRounds = 200;
constexpr double kSettled = 1e-10;

/// Inverse of a symmetric positive definite matrix, by Cholesky's factors: L L' = a.
Matrix inverse_of(Matrix a) {
  const std::size_t n = a.size();
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t k = 0; k < j; ++k) a[j][j] -= a[j][k] * a[j][k];
    require_invariant(a[j][j] > 0, "the covariance of anchors is positive definite");
    a[j][j] = std::sqrt(a[j][j]);
    for (std::size_t i = j + 1; i < n; ++i) {
      for (std::size_t k = 0; k < j; ++k) a[i][j] -= a[i][k] * a[j][k];
      a[i][j] /= a[j][j];
    }
  }
  Matrix lower(n, std::vector<double>(n, 0));  // inverse of L
  for (std::size_t c = 0; c < n; ++c) {
    lower[c][c] = 1 / a[c][c];
    for (std::size_t i = c + 1; i < n; ++i) {
      for (std::size_t k = c; k < i; ++k) lower[i][c] -= a[i][k] * lower[k][c];
      lower[i][c] /= a[i][i];
    }
  }
  Matrix inverse(n, std::vector<double>(n, 0));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      for (std::size_t k = i; k < n; ++k) inverse[i][j] += lower[k][i] * lower[k][j];
      inverse[j][i] = inverse[i][j];
    }
  return inverse;
}

AnchorPosterior given_own(const AnchorErrors& errors, std::vector<double> own) {
  const std::size_t n = errors.logs.size();
  Matrix covariance = errors.shared;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j)
      if (errors.configuration[i] == errors.configuration[j])
        covariance[i][j] += std::sqrt(own[i] * own[j]);
    covariance[i][i] += kRepeatVariance;
  }
  AnchorPosterior posterior{.weights = std::vector<double>(n, 0),
                            .inverse = inverse_of(std::move(covariance)),
                            .own = std::move(own)};
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      posterior.weights[i] += posterior.inverse[i][j] * errors.logs[j];
  return posterior;
}

/// Expected square of what is a configuration's own, of the anchor's scale.
double own_square(const AnchorErrors& errors, const AnchorPosterior& posterior, std::size_t i) {
  const auto covariance = [&](std::size_t j) {
    return errors.configuration[i] == errors.configuration[j]
               ? std::sqrt(posterior.own[i] * posterior.own[j])
               : 0.0;
  };
  double mean = 0, variance = posterior.own[i];
  for (std::size_t j = 0; j < errors.logs.size(); ++j) {
    mean += covariance(j) * posterior.weights[j];
    for (std::size_t k = 0; k < errors.logs.size(); ++k)
      variance -= covariance(j) * posterior.inverse[j][k] * covariance(k);
  }
  return mean * mean + std::max(0.0, variance);
}

}  // namespace

AnchorPosterior condition(const AnchorErrors& errors) {
  AnchorPosterior posterior = given_own(errors, errors.own);
  const double degrees = errors.degrees_of_own;
  if (!std::isfinite(degrees)) return posterior;
  for (int round = 0; round < kMostRounds; ++round) {
    double moved = 0;
    std::vector<double> own(errors.own.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (errors.own[i] <= 0) continue;
      own[i] = (degrees * errors.own[i] + own_square(errors, posterior, i)) / (degrees + 1);
      moved = std::max(moved, std::abs(own[i] / posterior.own[i] - 1));
    }
    posterior = given_own(errors, std::move(own));
    if (moved < kSettled) break;
  }
  return posterior;
}

}  // namespace meshplan::sim
