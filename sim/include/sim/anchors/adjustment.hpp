// Measured runs as anchors: what they tell of the error of runs that differ in configuration only.
//
// The terms of a step err (run_terms.hpp). Part of a term's error is common to all runs of one
// model and stack on one machine, part to runs whose layers do the same on a device, the rest is a
// run's own. Conditioned on anchors, the common parts correct other runs and narrow their
// intervals. Formula, source and figures: docs/cost_model.md, docs/accuracy.md.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "sim/anchors/anchor_posterior.hpp"
#include "sim/stacks/run_prediction.hpp"
#include "sim/stacks/run_terms.hpp"

namespace meshplan::sim {

/// What runs have in common that say something of each other's error: between models, machines and
/// stacks errors have nothing in common that the constants do not hold.
struct AnchoredTo {
  std::string cluster;
  std::string software;  // with its release
  std::string model;     // shape of a layer: layer_shape_of
  std::string precision;
  bool operator==(const AnchoredTo&) const = default;
};
AnchoredTo anchored_to(const TrainingRun& run);

/// A model's layers in a word, "h4096 f14336 a32": truncated models are the same model.
std::string layer_shape_of(const models::ModelSpec& model);

/// How a run's step errs: what each term adds to the standard deviation of its logarithm.
struct RunErrors {
  std::string layers;  // what a layer does on a device, in words: equal for equal layers
  std::string run;     // the whole configuration, in words: equal for equal runs
  // By RunTerm: the term's relative standard deviation, times its share of the step.
  std::vector<double> sigmas = std::vector<double>(kNumRunTerms, 0.0);
  std::vector<double> deviations = std::vector<double>(kNumRunTerms, 0.0);
  double variance() const;
};
/// @param run  as it was predicted: PreparedRun::run
RunErrors errors_of(const RunPrediction& prediction, const TrainingRun& run);

/// Covariance of the errors of two different runs.
double shared_covariance(const RunErrors& a, const RunErrors& b);
/// The part of a run's variance that no other configuration shares.
double own_variance(const RunErrors& errors);

/// A measured run beside its prediction.
struct Anchor {
  RunErrors errors;
  std::string source;  // "train.log: median of 80 steps after 20 of warm-up"
  double measured_s = 0;
  double predicted_s = 0;  // without any anchor
};

/// What anchors say of a part of a term's error: log of measured over predicted seconds.
struct Factor {
  std::string term;
  std::string shared_by;  // "all runs", or the layers, or the configuration that have it in common
  double prior_sigma = 0;
  double mean = 0;
  double sigma = 0;
};

/// What anchors say of a run's error, log of measured over predicted: mean and variance; and by
/// RunTerm the part of the mean and what is left of the variance.
struct Correction {
  double mean = 0;
  double variance = 0;
  std::vector<double> means = std::vector<double>(kNumRunTerms, 0.0);
  std::vector<double> variances = std::vector<double>(kNumRunTerms, 0.0);
};

/// Corrects predictions by anchors.
class Adjustment {
 public:
  /// More would take long, for time grows with the cube of their number.
  static constexpr std::size_t kMostAnchors = 256;
  /// @throws ConfigError without an anchor, or with more than these
  Adjustment(AnchoredTo of, std::vector<Anchor> anchors);
  const AnchoredTo& of() const { return of_; }
  const std::vector<Anchor>& anchors() const { return anchors_; }

  /// Step time, its parts and interval; a lower bound (RunPrediction::at_least) stays as it is.
  /// @param run  of the model, machine and stack of the anchors
  RunPrediction adjusted(const RunPrediction& prediction, const TrainingRun& run) const;
  Correction correction_of(const RunErrors& errors) const;
  /// Step time of an anchor's run as it is predicted beside all anchors.
  double adjusted_s(const Anchor& anchor) const;
  /// Is the run one of the anchors? @param run  as it was predicted: PreparedRun::run
  bool has_measured(const TrainingRun& run) const;
  /// Of all terms of the anchors, in the order of RunTerm.
  std::vector<Factor> factors() const;

 private:
  std::vector<double> covariances_with_anchors(const RunErrors& errors) const;
  std::vector<double> through_inverse(const std::vector<double>& covariances) const;
  Factor factor(const std::string& term, const std::string& shared_by, double prior_sigma,
                const std::vector<double>& loadings) const;

  AnchoredTo of_;
  std::vector<Anchor> anchors_;
  AnchorPosterior posterior_;
};

/// With the constants that are shipped. @param adjustment  of the run's kind; null: none
RunPrediction predicted(const PreparedRun& run, const Adjustment* adjustment);

/// @throws ConfigError for what is not of the anchors' machine, stack, model and precision, naming
/// the first that differs
void require_anchored(const AnchoredTo& anchors, const AnchoredTo& run, const std::string& file);

/// @throws ConfigError naming the place in the file: also for factors that do not follow from its
/// anchors
Adjustment parse_adjustment(std::string_view text, const std::string& file);
std::string to_json(const Adjustment& adjustment);

}  // namespace meshplan::sim
