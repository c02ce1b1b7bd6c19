#include "sim/anchors/adjustment.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

#include "anchors/corrected_parts.hpp"
#include "anchors/run_words.hpp"
#include "core/error.hpp"
#include "sim/prices/fitted_constants.hpp"
#include "stacks/release_fields.hpp"

namespace meshplan::sim {
namespace {

constexpr std::string_view kAllRuns = "all runs";
constexpr std::string_view kOfItsOwn = "what only this configuration has";

/// Part of a term's variance that is common to all runs, and to runs with equal layers besides.
struct SharedPart {
  double by_all = 0;
  double by_layers = 0;
};

// Variance components within groups of left-out runs: the maximum of the likelihood of their pairs
// under Student's t, moved from all runs to those of equal layers until no suite's error rises by
// more than half a point with one anchor or two (docs/accuracy.md, One measured run).
constexpr SharedPart kOfCompute{.by_all = 0.1, .by_layers = 0.8};
constexpr SharedPart kOfExchange{.by_all = 0, .by_layers = 0.8};
constexpr SharedPart kOfWholeStep{.by_all = 0.4, .by_layers = 0.4};
constexpr SharedPart kOfOneRun{};

constexpr std::array<SharedPart, kNumRunTerms> kShared = [] {
  std::array<SharedPart, kNumRunTerms> shared{};
  const auto set = [&](RunTerm term, SharedPart part) {
    shared[static_cast<std::size_t>(term)] = part;
  };
  for (const RunTerm term :
       {RunTerm::Products, RunTerm::Attention, RunTerm::Streams, RunTerm::Starts, RunTerm::Host})
    set(term, kOfCompute);
  for (const RunTerm term : {RunTerm::Exchange, RunTerm::Experts}) set(term, kOfExchange);
  for (const RunTerm term : {RunTerm::Pipeline, RunTerm::DataParallel, RunTerm::Optimizer,
                             RunTerm::HostMemory, RunTerm::Overhead})
    set(term, kOfOneRun);
  for (const RunTerm term : {RunTerm::Release, RunTerm::Habits, RunTerm::Constants})
    set(term, kOfWholeStep);
  return shared;
}();

/// By RunTerm: what the seconds of a term are multiplied by.
std::vector<double> factors_of_parts(const Correction& correction, const RunErrors& errors) {
  std::vector<double> factors(kNumRunTerms, 1.0);
  for (std::size_t t = 0; t < factors.size(); ++t)
    if (errors.deviations[t] > 0)
      factors[t] = std::exp(correction.means[t] * errors.sigmas[t] / errors.deviations[t]);
  return factors;
}

double shared_part(std::size_t term, bool equal_layers) {
  return kShared[term].by_all + (equal_layers ? kShared[term].by_layers : 0);
}

AnchorErrors errors_of_anchors(const std::vector<Anchor>& anchors) {
  AnchorErrors errors{.logs = {},
                      .shared = Matrix(anchors.size(), std::vector<double>(anchors.size())),
                      .own = {},
                      .configuration = {}};
  std::vector<std::string> configurations;
  for (std::size_t i = 0; i < anchors.size(); ++i) {
    const Anchor& anchor = anchors[i];
    errors.logs.push_back(std::log(anchor.measured_s / anchor.predicted_s));
    errors.own.push_back(own_variance(anchor.errors));
    for (std::size_t j = 0; j < anchors.size(); ++j)
      errors.shared[i][j] = shared_covariance(anchor.errors, anchors[j].errors);
    configurations.push_back(anchor.errors.run);
    const auto first = std::ranges::find(configurations, anchor.errors.run);
    errors.configuration.push_back(static_cast<int>(first - configurations.begin()));
  }
  return errors;
}

double product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

double RunErrors::variance() const {
  double sum = 0;
  for (const double deviation : deviations) sum += deviation * deviation;
  return sum;
}

AnchoredTo anchored_to(const TrainingRun& run) {
  return {.cluster = run.cluster,
          .software = run.profile,
          .model = layer_shape_of(run.model),
          .precision = std::string(meshplan::name_of(run.precision))};
}

std::string layer_shape_of(const models::ModelSpec& model) {
  return fmt::format("h{} f{} a{}{}", model.hidden_size, model.ffn_size, model.num_heads,
                     model.moe ? fmt::format(" e{}", model.moe->num_experts) : "");
}

RunErrors errors_of(const RunPrediction& prediction, const TrainingRun& run) {
  RunErrors errors{.layers = words_of_layers(run), .run = words_of_run(run)};
  const auto terms = run_terms(prediction, run);
  for (std::size_t t = 0; t < terms.size(); ++t) {
    errors.sigmas[t] = terms[t].sigma;
    errors.deviations[t] =
        std::max(0.0, terms[t].seconds) / prediction.step_time_s * terms[t].sigma;
  }
  return errors;
}

double shared_covariance(const RunErrors& a, const RunErrors& b) {
  const bool equal_layers = a.layers == b.layers;
  double sum = 0;
  for (std::size_t t = 0; t < kShared.size(); ++t)
    sum += shared_part(t, equal_layers) * a.deviations[t] * b.deviations[t];
  return sum;
}

double own_variance(const RunErrors& errors) {
  return std::max(0.0, errors.variance() - shared_covariance(errors, errors));
}

Adjustment::Adjustment(AnchoredTo of, std::vector<Anchor> anchors)
    : of_(std::move(of)), anchors_(std::move(anchors)) {
  if (anchors_.empty()) throw ConfigError("an adjustment rests on measured runs; there is none");
  if (anchors_.size() > kMostAnchors)
    throw ConfigError(fmt::format("an adjustment rests on at most {} measured runs; there are {}",
                                  kMostAnchors, anchors_.size()));
  posterior_ = condition(errors_of_anchors(anchors_));
}

/// With what the anchor's configuration has for itself, where it is the same one.
std::vector<double> Adjustment::covariances_with_anchors(const RunErrors& errors) const {
  std::vector<double> covariances;
  for (std::size_t i = 0; i < anchors_.size(); ++i)
    covariances.push_back(shared_covariance(errors, anchors_[i].errors) +
                          (errors.run == anchors_[i].errors.run ? posterior_.own[i] : 0));
  return covariances;
}

std::vector<double> Adjustment::through_inverse(const std::vector<double>& covariances) const {
  std::vector<double> gains;
  for (const std::vector<double>& row : posterior_.inverse)
    gains.push_back(product(row, covariances));
  return gains;
}

Correction Adjustment::correction_of(const RunErrors& errors) const {
  const std::vector<double> covariances = covariances_with_anchors(errors);
  const std::vector<double> gains = through_inverse(covariances);
  double own = own_variance(errors);
  for (std::size_t i = 0; i < anchors_.size(); ++i)
    if (errors.run == anchors_[i].errors.run) own = posterior_.own[i] + kRepeatVariance;
  Correction correction{.mean = product(covariances, posterior_.weights),
                        .variance = std::max(0.0, shared_covariance(errors, errors) + own -
                                                      product(covariances, gains))};
  for (std::size_t t = 0; t < kShared.size(); ++t) {
    std::vector<double> shared;
    for (const Anchor& anchor : anchors_)
      shared.push_back(shared_part(t, anchor.errors.layers == errors.layers) *
                       errors.deviations[t] * anchor.errors.deviations[t]);
    correction.means[t] = product(shared, posterior_.weights);
    const double prior = errors.deviations[t] * errors.deviations[t];
    correction.variances[t] = std::max(0.0, prior - product(shared, gains));
  }
  return correction;
}

RunPrediction Adjustment::adjusted(const RunPrediction& prediction, const TrainingRun& run) const {
  if (prediction.at_least) return prediction;
  const RunErrors errors = errors_of(prediction, run);
  const Correction correction = correction_of(errors);
  RunPrediction adjusted = prediction;
  adjusted.step_time_s = prediction.step_time_s * std::exp(correction.mean);
  adjusted.seconds =
      corrected(prediction.seconds, factors_of_parts(correction, errors), adjusted.step_time_s);
  adjusted.relative_sigma = std::sqrt(correction.variance);
  // Terms count as independent: what is left of each, so that together they are the interval.
  double left = 0;
  for (const double variance : correction.variances) left += variance;
  const auto terms = run_terms(adjusted, run);
  adjusted.narrowed.assign(kNumRunTerms, 1.0);
  for (std::size_t t = 0; t < terms.size(); ++t) {
    const double now = terms[t].seconds / adjusted.step_time_s * terms[t].sigma;
    if (now > 0 && left > 0)
      adjusted.narrowed[t] =
          std::sqrt(correction.variances[t] / left) * adjusted.relative_sigma / now;
  }
  return adjusted;
}

double Adjustment::adjusted_s(const Anchor& anchor) const {
  return anchor.predicted_s *
         std::exp(product(covariances_with_anchors(anchor.errors), posterior_.weights));
}

bool Adjustment::has_measured(const TrainingRun& run) const {
  const std::string words = words_of_run(run);
  return std::ranges::any_of(anchors_,
                             [&](const Anchor& anchor) { return anchor.errors.run == words; });
}

/// @param loadings  of each anchor on the factor, in its prior deviations
Factor Adjustment::factor(const std::string& term, const std::string& shared_by, double prior_sigma,
                          const std::vector<double>& loadings) const {
  const double known = product(loadings, through_inverse(loadings));
  return {.term = term,
          .shared_by = shared_by,
          .prior_sigma = prior_sigma,
          .mean = prior_sigma * product(loadings, posterior_.weights),
          .sigma = prior_sigma * std::sqrt(std::max(0.0, 1 - known))};
}

std::vector<Factor> Adjustment::factors() const {
  std::vector<Factor> factors;
  const auto add = [&](std::size_t term, double part, const std::string& shared_by,
                       const auto& shares) {
    std::vector<double> loadings;
    double sigma = 0;
    for (const Anchor& anchor : anchors_) {
      const double deviation = shares(anchor) ? anchor.errors.deviations[term] : 0;
      loadings.push_back(std::sqrt(part) * deviation);
      if (deviation > 0) sigma = std::max(sigma, anchor.errors.sigmas[term]);
    }
    if (part > 0 && sigma > 0)
      factors.push_back(factor(std::string(name_of(static_cast<RunTerm>(term))), shared_by,
                               std::sqrt(part) * sigma, loadings));
  };
  const auto distinct = [&](std::string RunErrors::*words) {
    std::vector<std::string> found;
    for (const Anchor& anchor : anchors_)
      if (std::ranges::find(found, anchor.errors.*words) == found.end())
        found.push_back(anchor.errors.*words);
    return found;
  };
  for (std::size_t t = 0; t < kShared.size(); ++t) {
    add(t, kShared[t].by_all, std::string(kAllRuns), [](const Anchor& /*any*/) { return true; });
    for (const std::string& layers : distinct(&RunErrors::layers))
      add(t, kShared[t].by_layers, layers,
          [&](const Anchor& anchor) { return anchor.errors.layers == layers; });
  }
  for (const std::string& run : distinct(&RunErrors::run)) {
    std::vector<double> loadings;
    double sigma = 0;
    for (std::size_t i = 0; i < anchors_.size(); ++i) {
      const bool own = anchors_[i].errors.run == run;
      loadings.push_back(own ? std::sqrt(posterior_.own[i]) : 0);
      if (own) sigma = std::sqrt(posterior_.own[i]);
    }
    factors.push_back(factor(std::string(kOfItsOwn), run, sigma, loadings));
  }
  return factors;
}

RunPrediction predicted(const PreparedRun& run, const Adjustment* adjustment) {
  static const Constants kConstants = constants_of(fitted_constants());
  static const Constants kSigmas = sigmas_of(fitted_constants());
  if (adjustment == nullptr) return run.predict(kConstants);
  return adjustment->adjusted(run.predict(kConstants, kSigmas), run.run());
}

void require_anchored(const AnchoredTo& anchors, const AnchoredTo& run, const std::string& file) {
  for (const auto& [name, member] : {std::pair{"cluster", &AnchoredTo::cluster},
                                     {"software", &AnchoredTo::software},
                                     {"model", &AnchoredTo::model},
                                     {"precision", &AnchoredTo::precision}})
    if (anchors.*member != run.*member)
      throw ConfigError(
          fmt::format("{}: {}: its anchors ran '{}', not '{}', and say nothing of runs with "
                      "another {}: predict "
                      "without --adjusted, or measure one such run (meshplan adjust)",
                      file, name, anchors.*member, run.*member, name));
}

}  // namespace meshplan::sim
