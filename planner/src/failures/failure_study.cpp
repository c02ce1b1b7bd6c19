#include "planner/failures/failure_study.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace meshplan::planner {
namespace {

constexpr int kMostSpares = 9;  // numbers of spare nodes that are played
constexpr std::array kIntervalFactors{0.25, 0.5, 1.0, 2.0, 4.0};
constexpr double kApart = 1.05;  // times as long: nearer intervals say nothing new

PlacePlay play_place(const FailureStudy& study, CheckpointPlace place) {
  PlacePlay played{.place = place, .chosen = place == study.assumptions.checkpoints};
  if (played.chosen) {
    played.closed_form = study.closed_form;
    played.play = study.play;
    return played;
  }
  if (place == CheckpointPlace::Partner && study.cluster.num_nodes == 1) return played;
  FailureAssumptions other = study.assumptions;
  other.checkpoints = place;
  other.checkpoint_s.reset();  // what is stated is of the chosen place
  other.interval_s.reset();
  const FailureModel model(study.plan.model, study.plan.frozen, study.cluster, other);
  played.closed_form = model.goodput(study.plan, study.step_time_s);
  played.play =
      play_failures(model.costs(study.plan), played.closed_form->interval_s, study.options);
  return played;
}

/// Multiples of the played interval, but none shorter than a checkpoint and a step take.
std::vector<IntervalPlay> play_intervals(const FailureStudy& study) {
  std::vector<IntervalPlay> intervals;
  const double least = study.costs.least_interval_s(study.step_time_s);
  for (const double factor : kIntervalFactors) {
    const double interval = std::max(least, factor * study.closed_form.interval_s);
    const bool repeats = !intervals.empty() && interval < kApart * intervals.back().interval_s;
    if (repeats && factor != 1.0) continue;
    if (repeats) intervals.pop_back();  // the one that was played stays
    intervals.push_back({interval, factor == 1.0
                                       ? study.play
                                       : play_failures(study.costs, interval, study.options)});
  }
  return intervals;
}

/// Numbers of spare nodes from 0 to more than are ever away at once, in equal steps.
std::vector<SparesPlay> play_spares(const FailureStudy& study) {
  const double away = study.costs.repair_s / study.costs.mtbf_s;
  const int most = static_cast<int>(
      std::min<double>(study.costs.num_nodes, std::ceil(away + 3 * std::sqrt(away) + 1)));
  const int step = std::max(1, (most + kMostSpares - 2) / (kMostSpares - 1));
  std::vector<int> numbers;
  for (int spares = 0; spares < most + step; spares += step)
    numbers.push_back(std::min(spares, study.costs.num_nodes));
  numbers.push_back(study.costs.spare_nodes);
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::vector<SparesPlay> played;
  for (const int spares : numbers) {
    FailureCosts costs = study.costs;
    costs.spare_nodes = spares;
    played.push_back({spares, play_failures(costs, study.closed_form.interval_s, study.options)});
  }
  return played;
}

}  // namespace

FailureStudy study_failures(const program::Plan& plan, const sim::Cluster& cluster,
                            double step_time_s, const FailureAssumptions& assumptions,
                            const PlayOptions& options) {
  const FailureModel model(plan.model, plan.frozen, cluster, assumptions);
  FailureStudy study{.plan = plan,
                     .cluster = cluster,
                     .step_time_s = step_time_s,
                     .assumptions = assumptions,
                     .assumed = model.assumed(),
                     .options = options,
                     .costs = model.costs(plan),
                     .closed_form = model.goodput(plan, step_time_s),
                     .play = {},
                     .places = {},
                     .intervals = {},
                     .spares = {}};
  study.play = play_failures(study.costs, study.closed_form.interval_s, options);
  for (const CheckpointPlace place : {CheckpointPlace::Storage, CheckpointPlace::Partner})
    study.places.push_back(play_place(study, place));
  study.intervals = play_intervals(study);
  study.spares = play_spares(study);
  const auto best = std::ranges::max_element(
      study.spares, {}, [](const SparesPlay& spares) { return spares.play.paid_goodput; });
  study.worth_having = static_cast<std::size_t>(best - study.spares.begin());
  return study;
}

}  // namespace meshplan::planner
