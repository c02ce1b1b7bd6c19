// Prices single changes of a plan, as it is said to run on a stack.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "check/changes.hpp"
#include "planner/check/check.hpp"
#include "program/checks/check.hpp"
#include "sim/estimator/estimator.hpp"

namespace meshplan::planner {

class Doctor {
 public:
  /// @param request  with a cluster, and of a plan that the software can be asked for
  Doctor(const CheckRequest& request, const RuleSet& rules);

  sim::StepPrediction estimate(const program::Plan& plan) { return estimator_.estimate(plan); }

  /// As CheckResult::fitting and faster. @param now  the plan as it is
  std::vector<PricedChange> fitting(const sim::StepPrediction& now);
  std::vector<PricedChange> faster(const sim::StepPrediction& now);

 private:
  /// Absent if the stack does not start it, this version cannot price it, or nothing changes.
  std::optional<PricedChange> priced(const std::vector<const Change*>& changes);
  bool starts(const program::Plan& plan) const;
  bool only_our_own(const std::vector<program::Violation>& violations) const;
  bool fits(const PricedChange& change) const;
  std::vector<PricedChange> fitting_pairs(const std::vector<const Change*>& savers);
  /// The fewest layers of a stage whose full recompute is enough, if some are.
  void add_partial_recompute(std::vector<PricedChange>& found);

  const CheckRequest& request_;
  const RuleSet& rules_;
  sim::Estimator estimator_;
  std::vector<Change> changes_;
};

}  // namespace meshplan::planner
