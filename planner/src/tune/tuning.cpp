#include "planner/tune/tuning.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/error.hpp"
#include "core/statistics.hpp"
#include "planner/search/search.hpp"
#include "search/techniques.hpp"

namespace meshplan::planner {
namespace {

constexpr double kAssumedSigma = 0.05;  // between rounds, until they are seen to differ by less
constexpr double kNeverTold = 0.01;     // of a step: runs of one plan differ by as much
constexpr double kPriorPlans = 2;       // that a deviation by the terms counts for

double round_median(const TuneRound& round) {
  return median(round.step_times_s);
}

std::vector<double> log_medians(const TuneCandidate& candidate) {
  std::vector<double> logs;
  for (const TuneRound& round : candidate.rounds) logs.push_back(std::log(round_median(round)));
  return logs;
}

double rounds_of(const TuneCandidate& candidate) {
  return static_cast<double>(candidate.rounds.size());
}

std::optional<std::size_t> fastest_of(const std::vector<TuneCandidate>& candidates,
                                      std::size_t least_rounds) {
  std::optional<std::size_t> fastest;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].has_run() && candidates[i].rounds.size() >= least_rounds &&
        (!fastest || median_s(candidates[i]) < median_s(candidates[*fastest])))
      fastest = i;
  return fastest;
}

}  // namespace

std::vector<double> step_times_s(const TuneCandidate& candidate) {
  std::vector<double> all;
  for (const TuneRound& round : candidate.rounds)
    all.insert(all.end(), round.step_times_s.begin(), round.step_times_s.end());
  return all;
}

double median_s(const TuneCandidate& candidate) {
  return median(step_times_s(candidate));
}

double round_sigma(const std::vector<TuneCandidate>& candidates) {
  double squares = kAssumedSigma * kAssumedSigma;
  double freedom = 1;
  for (const TuneCandidate& candidate : candidates) {
    if (!candidate.has_run()) continue;
    const std::vector<double> logs = log_medians(candidate);
    const double middle = mean(logs);
    for (const double log : logs) squares += (log - middle) * (log - middle);
    freedom += rounds_of(candidate) - 1;
  }
  return std::sqrt(squares / freedom);
}

double told_apart(const TuneCandidate& a, const TuneCandidate& b, double sigma) {
  require_invariant(!a.rounds.empty() && !b.rounds.empty(), "only what has run is compared");
  const double deviation = sigma * std::sqrt(1 / rounds_of(a) + 1 / rounds_of(b));
  return std::max(kNeverTold, std::expm1(sim::kDeviations80 * deviation));
}

bool is_settled(const TuneCandidate& candidate, const std::vector<TuneCandidate>& candidates,
                const TunePolicy& policy) {
  if (!candidate.has_run()) return false;
  if (std::ssize(candidate.rounds) >= policy.least_rounds) return true;
  const TuneCandidate& fastest = candidates[*fastest_of(candidates, 1)];
  const double noise = 1 + told_apart(candidate, fastest, round_sigma(candidates));
  return median_s(candidate) > std::max(kFarSlower, noise * noise) * median_s(fastest);
}

std::optional<TuneChoice> choose(const std::vector<TuneCandidate>& candidates,
                                 const TunePolicy& policy) {
  auto least = static_cast<std::size_t>(policy.least_rounds);
  std::optional<std::size_t> fastest = fastest_of(candidates, least);
  const bool complete = fastest.has_value();
  if (!complete) fastest = fastest_of(candidates, least = 1);
  if (!fastest) return std::nullopt;
  TuneChoice choice{.fastest = *fastest, .ties = {}, .complete = complete};
  const double sigma = round_sigma(candidates);
  const double best_s = median_s(candidates[*fastest]);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const TuneCandidate& other = candidates[i];
    if (other.has_run() && other.rounds.size() >= least &&
        (i == *fastest ||
         median_s(other) <= best_s * (1 + told_apart(other, candidates[*fastest], sigma))))
      choice.ties.push_back(i);
  }
  const auto seconds = [&](std::size_t i) { return median_s(candidates[i]); };
  std::ranges::stable_sort(choice.ties, {}, seconds);
  choice.index = *std::ranges::min_element(choice.ties, {}, [&](std::size_t i) {
    return std::tuple(techniques(candidate_of(candidates[i].plan)), seconds(i), i);
  });
  return choice;
}

TuneCalibration calibration_of(const std::vector<TuneCandidate>& candidates) {
  std::vector<double> logs;  // of measured / predicted
  for (const TuneCandidate& candidate : candidates)
    if (candidate.has_run() && candidate.prediction.after_s > 0)
      logs.push_back(std::log(median_s(candidate) / candidate.prediction.after_s));
  if (logs.empty()) return {};
  const double middle = median(logs);
  TuneCalibration calibration{.factor = std::exp(middle),
                              .freedom = static_cast<double>(logs.size()) - 1};
  for (const double log : logs) calibration.squares += (log - middle) * (log - middle);
  return calibration;
}

double optimistic_s(const TuneCandidate& candidate, const std::vector<TuneCandidate>& candidates) {
  const TunePrediction& prediction = candidate.prediction;
  if (prediction.after_s <= 0) return 0;
  const std::optional<std::size_t> fastest = fastest_of(candidates, 1);
  if (!fastest) return sim::interval_of(prediction.terms, prediction.after_s).low_s;
  const TuneCalibration calibration = calibration_of(candidates);
  const double of_terms =
      sim::indistinguishable_s(candidates[*fastest].prediction.terms, prediction.terms) /
      (sim::kDeviations80 * prediction.after_s);
  const double deviation = std::sqrt((kPriorPlans * of_terms * of_terms + calibration.squares) /
                                     (kPriorPlans + calibration.freedom));
  return calibration.factor * prediction.after_s *
         std::max(0.0, 1 - sim::kDeviations80 * deviation);
}

}  // namespace meshplan::planner
