#include "check/doctor.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "program/checks/check.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::planner {
namespace {

void sort_by_time(std::vector<PricedChange>& changes) {
  std::ranges::stable_sort(changes, {},
                           [](const PricedChange& change) { return change.step.step_time_s; });
}

}  // namespace

Doctor::Doctor(const CheckRequest& request, const RuleSet& rules)
    : request_(request),
      rules_(rules),
      estimator_(*request.cluster, request.plan.stack.software),
      changes_(changes_of(request.plan, *request.cluster)) {}

/// Facts that a file told beside its plan are of the plan as it is; the changed one has the stack's
/// own settings.
bool Doctor::starts(const program::Plan& plan) const {
  const std::vector<program::Violation> violations = program::check(plan);
  if (!violations.empty() && !only_our_own(violations)) return false;
  const std::vector<Judgement> judgements = judge(rules_, plan);
  if (std::ranges::any_of(judgements, &Judgement::refuses)) return false;
  return sim::software_violations(plan).empty();
}

/// Other stacks train what our runtime does not, and take a ZeRO stage that divides nothing.
bool Doctor::only_our_own(const std::vector<program::Violation>& violations) const {
  return !request_.plan.stack.is_own() &&
         std::ranges::all_of(violations, [](const program::Violation& violation) {
           return violation.rule == "not-lowered" || violation.rule == "zero";
         });
}

std::optional<PricedChange> Doctor::priced(const std::vector<const Change*>& changes) {
  PricedChange found{.words = {}, .settings = {}, .plan = request_.plan, .step = {}};
  for (const Change* change : changes) {
    found.words += (found.words.empty() ? "" : "; ") + change->words;
    found.settings.insert(found.settings.end(), change->settings.begin(), change->settings.end());
    found.plan = changed(found.plan, *change);
  }
  // Other stages take along what the plan says of each one.
  const auto cleared = [&](const std::vector<int>& now, const std::vector<int>& then,
                           const std::string& setting) {
    if (!now.empty() && then.empty() && !std::ranges::count(found.settings, setting))
      found.settings.push_back(setting);
  };
  const program::Plan& plan = request_.plan;
  cleared(plan.layers_per_stage, found.plan.layers_per_stage, "layers_per_stage=[]");
  cleared(plan.recompute.layers_per_stage, found.plan.recompute.layers_per_stage,
          "recompute.layers_per_stage=[]");
  try {
    if (!starts(found.plan)) return std::nullopt;
    found.step = estimator_.estimate(found.plan);
  } catch (const ConfigError&) {  // degrees that this stack does not divide
    return std::nullopt;
  }
  return found;
}

bool Doctor::fits(const PricedChange& change) const {
  return change.step.fits(request_.memory_reserve);
}

void Doctor::add_partial_recompute(std::vector<PricedChange>& found) {
  const std::vector<int> layers = program::resolved_layers_per_stage(request_.plan);
  int enough = *std::ranges::max_element(layers);
  int too_few = 0;
  std::optional<PricedChange> best;
  while (enough - too_few > 1) {
    const int tried = too_few + (enough - too_few) / 2;
    const Change change = partial_recompute(request_.plan, tried);
    std::optional<PricedChange> candidate = priced({&change});
    if (!candidate) return;
    const bool is_enough = fits(*candidate);
    (is_enough ? enough : too_few) = tried;
    if (is_enough && candidate->plan.recompute != request_.plan.recompute)
      best = std::move(candidate);
  }
  if (best) found.push_back(*std::move(best));
}

std::vector<PricedChange> Doctor::fitting(const sim::StepPrediction& now) {
  std::vector<PricedChange> found;
  std::vector<const Change*> savers;
  for (const Change& change : changes_) {
    auto candidate = priced({&change});
    if (!candidate) continue;
    // Where the host lacks memory, it is not told what a change saves of the device's.
    if (now.of_host || candidate->step.peak_memory_bytes < now.peak_memory_bytes)
      savers.push_back(&change);
    if (fits(*candidate)) found.push_back(*std::move(candidate));
  }
  add_partial_recompute(found);
  if (found.empty()) found = fitting_pairs(savers);
  sort_by_time(found);
  return found;
}

std::vector<PricedChange> Doctor::fitting_pairs(const std::vector<const Change*>& savers) {
  std::vector<PricedChange> found;
  for (std::size_t i = 0; i < savers.size(); ++i)
    for (std::size_t j = i + 1; j < savers.size(); ++j) {
      if (savers[i]->axis == savers[j]->axis) continue;
      auto candidate = priced({savers[i], savers[j]});
      if (candidate && fits(*candidate)) found.push_back(*std::move(candidate));
    }
  return found;
}

std::vector<PricedChange> Doctor::faster(const sim::StepPrediction& now) {
  std::vector<PricedChange> found;
  const auto keep = [&](std::optional<PricedChange> candidate) {
    if (!candidate) return;
    const bool no_worse =
        candidate->step.peak_memory_bytes <= now.peak_memory_bytes && candidate->step.fits();
    if (!fits(*candidate) && !no_worse) return;
    if (candidate->step.step_time_s * (1 + kWorthIt) < now.step_time_s)
      found.push_back(*std::move(candidate));
  };
  for (const Change& change : changes_) keep(priced({&change}));
  if (request_.plan.recompute.kind == program::RecomputeKind::Full) {
    std::vector<PricedChange> partial;
    add_partial_recompute(partial);
    for (PricedChange& change : partial) keep(std::move(change));
  }
  sort_by_time(found);
  return found;
}

}  // namespace meshplan::planner
