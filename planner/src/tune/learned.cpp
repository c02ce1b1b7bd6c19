#include "planner/tune/learned.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace meshplan::planner {

std::vector<TermError> terms_off(std::span<const sim::Breakdown> predicted,
                                 std::span<const sim::Breakdown> measured) {
  require_invariant(predicted.size() == measured.size(), "two breakdowns of each plan");
  std::vector<TermError> terms;
  const auto plans = static_cast<double>(predicted.size());
  for (const sim::Category category : sim::all_categories()) {
    TermError term{.name = sim::name_of(category)};
    for (std::size_t i = 0; i < predicted.size(); ++i) {
      term.predicted_s += predicted[i][category] / plans;
      term.measured_s += measured[i][category] / plans;
    }
    if (term.predicted_s > 0 || term.measured_s > 0) terms.push_back(term);
  }
  std::ranges::stable_sort(terms, std::ranges::greater{},
                           [](const TermError& term) { return std::abs(term.off_s()); });
  return terms;
}

std::optional<PredictionErrors> prediction_errors(const std::vector<TuneCandidate>& candidates) {
  const double factor = calibration_of(candidates).factor;
  PredictionErrors errors;
  for (const TuneCandidate& candidate : candidates) {
    if (!candidate.has_run()) continue;
    const double measured_s = median_s(candidate);
    errors.before += std::abs(candidate.prediction.before_s / measured_s - 1);
    errors.after += std::abs(factor * candidate.prediction.after_s / measured_s - 1);
    ++errors.plans;
  }
  if (errors.plans == 0) return std::nullopt;
  errors.before /= errors.plans;
  errors.after /= errors.plans;
  return errors;
}

}  // namespace meshplan::planner
