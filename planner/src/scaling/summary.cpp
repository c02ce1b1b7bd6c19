// What the points of a scaling curve say together.
#include <algorithm>
#include <cmath>
#include <map>

#include "planner/scaling/curve.hpp"
#include "program/cost/model_flops.hpp"

namespace meshplan::planner {
namespace {

using sim::StepPart;

/// Device-seconds of a part for each model FLOP of the step.
double cost_of(const PlanFigures& figures, StepPart part) {
  return figures.parts[part] * figures.devices() / program::model_flops_per_step(figures.plan);
}

double cost_of(const PlanFigures& figures) {
  return figures.step.step_time_s * figures.devices() / program::model_flops_per_step(figures.plan);
}

/// Terms as parts of a step.
std::vector<sim::PredictionTerm> shares_of(const PlanFigures& figures) {
  std::vector<sim::PredictionTerm> shares = figures.terms;
  for (sim::PredictionTerm& term : shares) term.seconds /= figures.step.step_time_s;
  return shares;
}

/// Half the width of the 80 % interval of the ratio of two step times, as sim::half_width_80: a
/// term errs by the same factor in both, so the ratio errs by what its shares differ in.
double half_width_of_ratio(const PlanFigures& a, const PlanFigures& b) {
  return std::expm1(sim::indistinguishable_s(shares_of(a), shares_of(b)));
}

void set_ratios(ScalingPoint& point, const ScalingPoint& first, ScalingMode mode) {
  const PlanFigures& base = *first.figures;
  const PlanFigures& own = *point.figures;
  const double scale = static_cast<double>(point.devices) / first.devices;
  point.efficiency = cost_of(base) / cost_of(own);
  point.speed_up = point.efficiency * scale;
  const double width = half_width_of_ratio(base, own);
  point.speed_up_80 = {point.speed_up / (1 + width), point.speed_up * (1 + width)};
  point.serial = serial_part(mode, {scale, point.speed_up});
  for (const StepPart part : sim::all_step_parts())
    point.lost[static_cast<std::size_t>(part)] =
        (cost_of(own, part) - cost_of(base, part)) / cost_of(own);
}

template <class Condition>
std::optional<std::size_t> first_point(const std::vector<ScalingPoint>& points,
                                       const Condition& holds) {
  for (std::size_t i = 0; i < points.size(); ++i)
    if (points[i].is_valid() && holds(points[i])) return i;
  return std::nullopt;
}

std::optional<std::size_t> knee_of(const std::vector<ScalingPoint>& points, std::size_t first,
                                   double least) {
  std::optional<std::size_t> knee;
  for (std::size_t i = first; i < points.size(); ++i) {
    if (!points[i].fits()) continue;
    if (points[i].efficiency < least) break;
    knee = i;
  }
  return knee;
}

std::optional<NextBottleneck> bottleneck_between(const std::vector<ScalingPoint>& points,
                                                 std::size_t from, std::size_t to) {
  const PlanFigures& a = *points[from].figures;
  const PlanFigures& b = *points[to].figures;
  NextBottleneck next{.from = from, .to = to};
  for (const StepPart part : sim::all_step_parts()) {
    const double lost = (cost_of(b, part) - cost_of(a, part)) / cost_of(b);
    next.all += lost;
    if (lost <= next.lost) continue;
    next.lost = lost;
    next.part = part;
  }
  if (next.lost == 0) return std::nullopt;
  return next;
}

std::optional<NextBottleneck> next_bottleneck(const ScalingCurve& curve) {
  std::vector<std::size_t> valid;
  for (std::size_t i = 0; i < curve.points.size(); ++i)
    if (curve.points[i].is_valid()) valid.push_back(i);
  const auto after = std::ranges::upper_bound(valid, curve.knee.value_or(*curve.first));
  if (after != valid.begin() && after != valid.end())
    return bottleneck_between(curve.points, *(after - 1), *after);
  if (valid.size() < 2) return std::nullopt;
  return bottleneck_between(curve.points, valid[valid.size() - 2], valid.back());
}

std::vector<LevelChange> changes_of_level(const std::vector<ScalingPoint>& points) {
  std::vector<LevelChange> changes;
  const ScalingPoint* before = nullptr;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!points[i].is_valid()) continue;
    if (before != nullptr && before->level != points[i].level)
      changes.push_back({i, before->level, points[i].level});
    before = &points[i];
  }
  return changes;
}

/// The serial part that fits all points, with the index of the worst among all points.
void fit(ScalingCurve& curve) {
  std::vector<SpeedUp> seen;
  std::vector<std::size_t> index;
  std::vector<double> serial;
  const int first = curve.points[*curve.first].devices;
  for (std::size_t i = *curve.first; i < curve.points.size(); ++i) {
    const ScalingPoint& point = curve.points[i];
    if (!point.is_valid()) continue;
    seen.push_back({static_cast<double>(point.devices) / first, point.speed_up});
    index.push_back(i);
    if (point.serial) serial.push_back(*point.serial);
  }
  curve.serial = fit_serial(curve.request.mode, seen);
  if (curve.serial) curve.serial->worst = index[curve.serial->worst];
  curve.trend = trend_of(serial);
}

/// Few sizes: the base, both sides of each bend, and where the law and the simulation part.
std::vector<SizeToTest> sizes_to_test(const ScalingCurve& curve) {
  constexpr double kModelsDiffer = 0.03;
  std::map<std::size_t, std::vector<std::string>> reasons;
  const std::vector<ScalingPoint>& points = curve.points;
  reasons[*curve.first].emplace_back("what all ratios are of");
  for (const LevelChange& change : curve.level_changes) {
    if (change.from.empty()) continue;
    reasons[change.point].push_back("the first over " + change.to);
  }
  const bool is_last = curve.next && curve.knee && curve.next->to <= *curve.knee;
  if (curve.knee && *curve.knee != *curve.first)
    reasons[*curve.knee].emplace_back(is_last ? "the largest that keeps the efficiency"
                                              : "the knee");
  if (curve.next && curve.knee && curve.next->to > *curve.knee)
    reasons[curve.next->to].emplace_back("the first behind the knee");
  if (curve.serial && std::abs(curve.serial->worst_error) > kModelsDiffer)
    reasons[curve.serial->worst].emplace_back(
        "where one serial part and the simulation differ most");
  std::vector<SizeToTest> sizes;
  for (auto& [point, why] : reasons)
    if (points[point].fits()) sizes.push_back({point, std::move(why)});
  return sizes;
}

double sum_of(const std::array<double, sim::kNumStepParts>& lost, bool (*counts)(StepPart)) {
  double sum = 0;
  for (const StepPart part : sim::all_step_parts())
    if (counts(part)) sum += lost[static_cast<std::size_t>(part)];
  return sum;
}

}  // namespace

double ScalingPoint::lost_to_communication() const {
  return sum_of(lost, is_communication);
}

double ScalingPoint::lost_to_bubble() const {
  return lost[static_cast<std::size_t>(StepPart::Bubble)];
}

double ScalingPoint::lost_to_rest() const {
  return 1 - efficiency - lost_to_communication() - lost_to_bubble();
}

void summarize(ScalingCurve& curve) {
  std::vector<ScalingPoint>& points = curve.points;
  curve.first = first_point(points, [](const ScalingPoint& point) { return point.fits(); });
  if (!curve.first) curve.first = first_point(points, [](const ScalingPoint&) { return true; });
  if (!curve.first) return;
  const ScalingPoint base = points[*curve.first];
  for (ScalingPoint& point : points)
    if (point.is_valid()) set_ratios(point, base, curve.request.mode);
  curve.knee = knee_of(points, *curve.first, curve.request.least_efficiency);
  curve.next = next_bottleneck(curve);
  curve.level_changes = changes_of_level(points);
  const auto bends = [&](double (ScalingPoint::*lost)() const) {
    return first_point(points,
                       [&](const ScalingPoint& point) { return (point.*lost)() >= kBends; });
  };
  curve.communication_bends = bends(&ScalingPoint::lost_to_communication);
  curve.bubble_bends = bends(&ScalingPoint::lost_to_bubble);
  curve.rest_bends = bends(&ScalingPoint::lost_to_rest);
  fit(curve);
  curve.worth_testing = sizes_to_test(curve);
}

}  // namespace meshplan::planner
