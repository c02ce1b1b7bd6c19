// Errors of runs that share parts of them, conditioned on the runs that were measured.
#pragma once

#include <limits>
#include <vector>

namespace meshplan::sim {

using Matrix = std::vector<std::vector<double>>;

/// Tails of a run's own error: Student's t with 4 degrees of freedom, as of intervals
/// (kDeviations80).
inline constexpr double kOwnDegrees = 4;
inline constexpr double kNormalTails = std::numeric_limits<double>::infinity();

/// Of two measurements of one configuration on one machine, by which their logarithms differ: less
/// than between releases, which is 1.8 % in the median.
inline constexpr double kRepeatVariance = 0.01 * 0.01;

struct AnchorErrors {
  std::vector<double> logs;        // of measured over predicted
  Matrix shared;                   // covariance of what the anchors share
  std::vector<double> own;         // variance of what the configuration of each has for itself
  std::vector<int> configuration;  // equal numbers: measurements of the same run
  double degrees_of_own = kOwnDegrees;
};

struct AnchorPosterior {
  std::vector<double> weights;  // inverse * logs: an error's mean is its covariances with the
                                // anchors times these
  Matrix inverse;               // of the covariance of the logs
  std::vector<double> own;      // variance of what is the configuration's own, as its tails have it
};

/// Gaussian conditioning (Rasmussen and Williams 2006, "Gaussian Processes for Machine Learning",
/// 2.23 and 2.24), with the scale of each configuration's own error by variational Bayes (Tipping
/// and Lawrence 2005, "Variational inference for Student-t models", 2.2): an outlier is taken to be
/// its run's own.
AnchorPosterior condition(const AnchorErrors& errors);

}  // namespace meshplan::sim
