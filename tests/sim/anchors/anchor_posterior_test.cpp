// Expected values by conjugate formulas and by brute force over a grid.
#include "sim/anchors/anchor_posterior.hpp"

#include <catch2/catch.hpp>
#include <cmath>

namespace meshplan::sim {
namespace {

struct Moments {
  double mean = 0;
  double variance = 0;
};

/// Of an error that has these covariances with the anchors, and this variance.
Moments posterior_of(const AnchorPosterior& posterior, const std::vector<double>& covariances,
                     double variance) {
  Moments moments{.mean = 0, .variance = variance};
  for (std::size_t i = 0; i < covariances.size(); ++i) {
    moments.mean += covariances[i] * posterior.weights[i];
    for (std::size_t j = 0; j < covariances.size(); ++j)
      moments.variance -= covariances[i] * posterior.inverse[i][j] * covariances[j];
  }
  return moments;
}

/// Mean and variance of the first of two factors, given anchors with these loadings, by sums over a
/// grid of both: `density` is that of an anchor's own error.
template <class Density>
Moments by_grid(const std::vector<std::pair<double, double>>& loadings,
                const std::vector<double>& logs, const Density& density) {
  constexpr int kSteps = 400;
  constexpr double kReach = 6;  // prior deviations
  double sum = 0, mean = 0, square = 0;
  for (int i = -kSteps; i <= kSteps; ++i)
    for (int j = -kSteps; j <= kSteps; ++j) {
      const double first = kReach * i / kSteps, second = kReach * j / kSteps;
      double weight = std::exp(-(first * first + second * second) / 2);
      for (std::size_t a = 0; a < logs.size(); ++a)
        weight *= density(logs[a] - loadings[a].first * first - loadings[a].second * second);
      sum += weight;
      mean += weight * first;
      square += weight * first * first;
    }
  mean /= sum;
  return {.mean = mean, .variance = square / sum - mean * mean};
}

AnchorErrors errors_of_factors(const std::vector<std::pair<double, double>>& loadings,
                               const std::vector<double>& logs, double own) {
  AnchorErrors errors{.logs = logs,
                      .shared = Matrix(logs.size(), std::vector<double>(logs.size())),
                      .own = std::vector<double>(logs.size(), own),
                      .configuration = {}};
  for (std::size_t i = 0; i < logs.size(); ++i) {
    errors.configuration.push_back(static_cast<int>(i));
    for (std::size_t j = 0; j < logs.size(); ++j)
      errors.shared[i][j] =
          loadings[i].first * loadings[j].first + loadings[i].second * loadings[j].second;
  }
  return errors;
}

const std::vector<std::pair<double, double>> kLoadings{{0.05, 0.01}, {0.02, 0.06}, {0.04, 0.04}};

Moments first_factor(const AnchorErrors& errors) {
  return posterior_of(condition(errors),
                      {kLoadings[0].first, kLoadings[1].first, kLoadings[2].first}, 1);
}

}  // namespace

// One factor of prior variance p, one anchor with noise v: mean p d / (p + v), variance p v / (p +
// v) (conjugate normal).
TEST_CASE("One factor and one anchor follow the conjugate normal", "[sim][anchors]") {
  constexpr double kPrior = 0.03 * 0.03, kOwn = 0.04 * 0.04, kLog = 0.07;
  constexpr double kNoise = kOwn + kRepeatVariance;
  const AnchorPosterior posterior = condition({.logs = {kLog},
                                               .shared = {{kPrior}},
                                               .own = {kOwn},
                                               .configuration = {0},
                                               .degrees_of_own = kNormalTails});
  const Moments factor = posterior_of(posterior, {kPrior}, kPrior);
  CHECK(factor.mean == Approx(kPrior * kLog / (kPrior + kNoise)));
  CHECK(factor.variance == Approx(kPrior * kNoise / (kPrior + kNoise)));
}

TEST_CASE("Two factors and three anchors follow the sum over a grid", "[sim][anchors]") {
  constexpr double kOwn = 0.03 * 0.03;
  const std::vector<double> logs{0.06, -0.02, 0.05};
  AnchorErrors errors = errors_of_factors(kLoadings, logs, kOwn);
  errors.degrees_of_own = kNormalTails;
  const Moments grid = by_grid(kLoadings, logs, [&](double error) {
    return std::exp(-error * error / (2 * (kOwn + kRepeatVariance)));
  });
  const Moments factor = first_factor(errors);
  CHECK(factor.mean == Approx(grid.mean).epsilon(1e-6));
  CHECK(factor.variance == Approx(grid.variance).epsilon(1e-6));
}

// Variational Bayes is not exact: its mean is within a tenth of a deviation, its variance below the
// exact one by less than a fifth.
TEST_CASE("Student's tails are near the sum over a grid", "[sim][anchors]") {
  constexpr double kOwn = 0.03 * 0.03;
  for (const double third : {0.05, 0.4}) {
    const std::vector<double> logs{0.06, -0.02, third};
    const Moments grid = by_grid(kLoadings, logs, [&](double error) {
      return std::pow(1 + error * error / (kOwnDegrees * kOwn), -(kOwnDegrees + 1) / 2);
    });
    const Moments factor = first_factor(errors_of_factors(kLoadings, logs, kOwn));
    CHECK(factor.mean == Approx(grid.mean).margin(0.1));
    CHECK(factor.variance == Approx(grid.variance).epsilon(0.2));
  }
}

TEST_CASE("A gross outlier among anchors bends nothing", "[sim][anchors]") {
  const std::vector<std::pair<double, double>> loadings(5, {0.03, 0.0});
  const auto mean_of = [&](double last) {
    const AnchorPosterior posterior =
        condition(errors_of_factors(loadings, {0.02, 0.025, 0.015, 0.02, last}, 0.02 * 0.02));
    return posterior_of(posterior, std::vector<double>(5, 0.03 * 0.03), 0.03 * 0.03).mean;
  };
  CHECK(mean_of(std::log(2)) == Approx(mean_of(0.02)).margin(0.003));
}

TEST_CASE("Measurements of one configuration share what is its own", "[sim][anchors]") {
  AnchorErrors errors{.logs = {0.05, 0.05, 0.05},
                      .shared = Matrix(3, std::vector<double>(3, 0.02 * 0.02)),
                      .own = std::vector<double>(3, 0.04 * 0.04),
                      .configuration = {0, 0, 0},
                      .degrees_of_own = kNormalTails};
  const double together = posterior_of(condition(errors), std::vector<double>(3, 4e-4), 4e-4).mean;
  errors.configuration = {0, 1, 2};
  const double apart = posterior_of(condition(errors), std::vector<double>(3, 4e-4), 4e-4).mean;
  // 1/5 of 0.05, less the noise of three measurements; 3 runs that say the same say more
  CHECK(together == Approx(0.05 * 4e-4 / (4e-4 + 16e-4 + kRepeatVariance / 3)));
  CHECK(apart > 1.8 * together);
}

}  // namespace meshplan::sim
