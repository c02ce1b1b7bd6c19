#include "scaling/words.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/units.hpp"
#include "core/words.hpp"
#include "explain/step_part_names.hpp"
#include "planner/search/reasons.hpp"
#include "reports/search_report.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using planner::ScalingCurve;
using planner::ScalingMode;
using planner::ScalingPoint;

constexpr std::size_t kTextColumns = 100;

std::string devices_of(const ScalingPoint& point) {
  return fmt::format("{} device{}", grouped(point.devices), point.devices == 1 ? "" : "s");
}

const ScalingPoint& first_of(const ScalingCurve& curve) {
  return curve.points[*curve.first];
}

std::string speed_up_words(const ScalingPoint& point) {
  return fmt::format("{:.3g} times as much work a second (80 % interval {:.3g} to {:.3g})",
                     point.speed_up, point.speed_up_80.low_s, point.speed_up_80.high_s);
}

CardLine band_line(const ScalingCurve& curve) {
  const ScalingPoint& first = first_of(curve);
  const std::string least = percent(curve.request.least_efficiency);
  if (!curve.knee) return {"band", "no size fits; times are of plans that lack memory"};
  const ScalingPoint& knee = curve.points[*curve.knee];
  if (curve.knee == curve.first)
    return {"band", fmt::format("{} alone: the next size is less than {} as efficient",
                                devices_of(first), least)};
  return {"band", fmt::format("{} to {}, each at least {} as efficient as {}; at the last {}",
                              grouped(first.devices), devices_of(knee), least,
                              grouped(first.devices), speed_up_words(knee))};
}

CardLine knee_line(const ScalingCurve& curve) {
  const std::string least = percent(curve.request.least_efficiency);
  const std::string rule =
      fmt::format("the largest size up to which all that fit have at least {}", least);
  if (!curve.knee) return {"knee", "none: " + rule};
  const ScalingPoint& knee = curve.points[*curve.knee];
  const bool last =
      std::ranges::none_of(curve.points.begin() + static_cast<std::ptrdiff_t>(*curve.knee) + 1,
                           curve.points.end(), &ScalingPoint::fits);
  if (last)
    return {"knee", fmt::format("not reached: {} still have {} of the efficiency ({})",
                                devices_of(knee), percent(knee.efficiency), rule)};
  return {"knee", fmt::format("{}: {} of the efficiency ({})", devices_of(knee),
                              percent(knee.efficiency), rule)};
}

CardLine bottleneck_line(const ScalingCurve& curve) {
  if (!curve.next) return {"next bottleneck", "none: no part of the step grows"};
  const planner::NextBottleneck& next = *curve.next;
  return {
      "next bottleneck",
      fmt::format("{}: from {} to {} devices it costs {} of the efficiency, all parts "
                  "together {}",
                  words_for(next.part), grouped(curve.points[next.from].devices),
                  grouped(curve.points[next.to].devices), percent(next.lost), percent(next.all))};
}

CardLine serial_line(const ScalingCurve& curve) {
  const bool strong = curve.request.mode == ScalingMode::Strong;
  const std::string law = strong ? "Amdahl 1967" : "Gustafson 1988";
  if (!curve.serial) return {"serial part", "takes two sizes"};
  const double serial = curve.serial->serial;
  if (serial <= 0)
    return {"serial part", fmt::format("none ({}): more devices do more than their share", law)};
  std::string text = fmt::format("{:.3g} % explains all points best ({})", 100 * serial, law);
  if (strong)
    text += fmt::format(": at most {:.4g} times the work a second of {}", 1 / serial,
                        devices_of(first_of(curve)));
  return {"serial part",
          text + fmt::format("; {} off at {}", signed_percent(curve.serial->worst_error),
                             devices_of(curve.points[curve.serial->worst]))};
}

std::string meaning_of(planner::Trend trend) {
  switch (trend) {
    case planner::Trend::Rising:
      return "overhead that grows with the devices bends the curve, no serial part";
    case planner::Trend::Constant:
      return "a part that does not shrink bends the curve (see the next bottleneck)";
    case planner::Trend::Falling:
      return "the first doublings cost more than later ones do";
  }
  return "";
}

std::vector<CardLine> karp_flatt_line(const ScalingCurve& curve) {
  if (!curve.trend) return {};
  const ScalingPoint *low = nullptr, *high = nullptr;
  for (const ScalingPoint& point : curve.points) {
    if (!point.serial || point.devices < first_of(curve).devices) continue;
    if (low == nullptr) low = &point;
    high = &point;
  }
  return {{curve.request.mode == ScalingMode::Strong ? "Karp-Flatt" : "of each size",
           fmt::format("serial part {:.3g} % at {}, {:.3g} % at {} devices, {}: {}",
                       100 * *low->serial, grouped(low->devices), 100 * *high->serial,
                       grouped(high->devices), name_of(*curve.trend), meaning_of(*curve.trend))}};
}

const sim::FabricLevel* level_named(const sim::Cluster& cluster, const std::string& name) {
  const auto found = std::ranges::find(cluster.fabric, name, &sim::FabricLevel::name);
  return found == cluster.fabric.end() ? nullptr : &*found;
}

std::string link_words(const sim::Cluster& cluster, const std::string& level) {
  const sim::FabricLevel* known = level_named(cluster, level);
  return known == nullptr ? level
                          : fmt::format("{} ({:.4g} GB/s a link)", level, known->link_gb_per_s);
}

std::vector<CardLine> bandwidth_line(const ScalingReport& report) {
  const ScalingCurve& curve = report.curve;
  const std::string axis(curve.axis ? name_of(*curve.axis) : "the job");
  std::vector<std::string> parts;
  for (const planner::LevelChange& change : curve.level_changes)
    if (!change.from.empty() && !change.to.empty())
      parts.push_back(fmt::format(
          "at {} {} goes from {} to {}", devices_of(curve.points[change.point]), axis,
          link_words(report.cluster, change.from), link_words(report.cluster, change.to)));
  if (curve.communication_bends)
    parts.push_back(fmt::format("exposed communication first costs {} of the efficiency at {}",
                                percent(planner::kBends),
                                devices_of(curve.points[*curve.communication_bends])));
  else
    parts.push_back(fmt::format("exposed communication costs less than {} of the efficiency",
                                percent(planner::kBends)));
  return {{"bandwidth", fmt::format("{}", fmt::join(parts, "; "))}};
}

std::vector<CardLine> other_bends(const ScalingCurve& curve) {
  std::vector<std::string> parts;
  if (curve.bubble_bends)
    parts.push_back(fmt::format("the bubble at {}", devices_of(curve.points[*curve.bubble_bends])));
  if (curve.rest_bends)
    parts.push_back(
        fmt::format("what does not shrink (optimizer, small operations, stragglers) at {}",
                    devices_of(curve.points[*curve.rest_bends])));
  if (parts.empty()) return {};
  return {{"Amdahl", fmt::format("{} of the efficiency are first lost to {}",
                                 percent(planner::kBends), fmt::join(parts, ", to "))}};
}

std::string iso_words(const ScalingPoint& point) {
  const planner::IsoBatch& iso = *point.iso;
  return fmt::format("{}{} at {}", iso.reached ? "" : "more than ", grouped(iso.global_batch_size),
                     grouped(point.devices));
}

std::vector<CardLine> iso_line(const ScalingCurve& curve) {
  std::vector<std::string> larger;
  const std::optional<planner::IsoBatch>& least = first_of(curve).iso;
  if (!least) return {};
  for (const ScalingPoint& point : curve.points)
    if (point.iso && point.iso->global_batch_size > least->global_batch_size)
      larger.push_back(iso_words(point));
  return {{"iso-efficiency",
           fmt::format("{} sequences of a step keep {} of the efficiency at {}",
                       grouped(least->global_batch_size), percent(curve.request.least_efficiency),
                       larger.empty() ? "every size"
                                      : fmt::format("small sizes; it takes {} devices",
                                                    fmt::join(larger, ", ")))}};
}

std::vector<CardLine> measured_line(const ScalingReport& report) {
  if (!report.measured || report.measured->predicted == 0) return {};
  const planner::MeasuredCurve& measured = *report.measured;
  std::string text = fmt::format(
      "{} of {} sizes inside their 80 % interval, mean absolute error {} ({})", measured.inside,
      measured.predicted, percent(measured.mean_absolute_error), report.measured_source);
  if (measured.serial) text += fmt::format("; serial part {:.3g} %", 100 * measured.serial->serial);
  return {{"measured", text}};
}

std::vector<CardLine> cores_line(const ScalingReport& report) {
  const auto first = std::ranges::find_if(report.curve.points, &ScalingPoint::shares_cores);
  if (first == report.curve.points.end()) return {};
  return {{"shared cores",
           fmt::format("from {} on ranks outnumber the {} cores and take turns: their time is the "
                       "machine's limit, not the axis'",
                       devices_of(*first), report.cluster.cores_per_host)}};
}

CardLine testing_line(const ScalingCurve& curve) {
  std::vector<std::string> sizes;
  for (const planner::SizeToTest& size : curve.worth_testing)
    sizes.push_back(fmt::format("{} ({})", grouped(curve.points[size.point].devices),
                                fmt::join(size.reasons, ", ")));
  return {"worth testing", fmt::format("{}", fmt::join(sizes, ", "))};
}

void append(std::vector<CardLine>& lines, std::vector<CardLine> more) {
  std::ranges::move(more, std::back_inserter(lines));
}

}  // namespace

std::string what_is_scaled(const ScalingReport& report) {
  const ScalingCurve& curve = report.curve;
  const std::string over =
      curve.axis ? fmt::format("over {}", name_of(*curve.axis)) : "of the best plan of each size";
  if (curve.request.mode == ScalingMode::Strong)
    return fmt::format("strong scaling {}: the work of a step stays, so each device has less",
                       over);
  return fmt::format("weak scaling {}: the {} grows with the devices, so each has as much to do",
                     over, planner::scaled_work(curve.axis));
}

std::vector<CardLine> header_lines(const ScalingReport& report) {
  if (!report.curve.first) return {};
  const planner::PlanFigures& first = *first_of(report.curve).figures;
  std::vector<CardLine> lines{{"model", model_line(first.plan.model)},
                              {"cluster", cluster_line(report.cluster)},
                              {"step", workload_line(first.plan.workload)},
                              {"plan", first.description}};
  lines.push_back({"scaling", what_is_scaled(report)});
  return lines;
}

std::vector<CardLine> card_lines(const ScalingReport& report) {
  const ScalingCurve& curve = report.curve;
  if (!curve.first) return {{"no plan", "none of the sizes has a plan that obeys the rules"}};
  std::vector<CardLine> lines{band_line(curve), knee_line(curve), bottleneck_line(curve),
                              serial_line(curve)};
  append(lines, karp_flatt_line(curve));
  append(lines, bandwidth_line(report));
  append(lines, other_bends(curve));
  append(lines, iso_line(curve));
  append(lines, measured_line(report));
  append(lines, cores_line(report));
  lines.push_back(testing_line(curve));
  return lines;
}

std::vector<std::string> point_notes(const ScalingReport& report) {
  std::vector<std::string> notes;
  for (const ScalingPoint& point : report.curve.points) {
    if (!point.is_valid()) {
      notes.push_back(fmt::format("{}: no plan: {}", devices_of(point), point.message));
    } else if (!point.fits()) {
      const sim::StepPrediction& step = point.figures->step;
      notes.push_back(fmt::format("{}: does not fit: stage {} needs {}", devices_of(point),
                                  step.largest_stage,
                                  planner::shortage(step.peak_memory_bytes, step.capacity_bytes,
                                                    step.of_host)));
    }
  }
  return notes;
}

std::string seconds_between(const sim::Interval& interval) {
  struct Unit {
    double least;
    double times;
    const char* name;
  };
  for (const auto& [least, times, name] :
       {Unit{1, 1, "s"}, {1e-3, kMilliseconds, "ms"}, {0, kMicroseconds, "us"}}) {
    if (interval.high_s < least) continue;
    const auto digits = [&](double seconds) {
      const double value = seconds * times;
      return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
    };
    return fmt::format("{}..{} {}", digits(interval.low_s), digits(interval.high_s), name);
  }
  return "";
}

std::string to_text(const std::vector<CardLine>& lines) {
  std::size_t gutter = 0;
  for (const CardLine& line : lines) gutter = std::max(gutter, line.name.size() + 2);
  std::string text;
  for (const CardLine& line : lines) {
    std::string row = line.name + std::string(gutter - line.name.size(), ' ');
    bool begins = true;
    for (const std::string& word : words_of(line.text)) {
      if (!begins && row.size() + 1 + word.size() > kTextColumns) {
        text += row + "\n";
        row = std::string(gutter, ' ');
        begins = true;
      }
      row += (begins ? "" : " ") + word;
      begins = false;
    }
    text += row + "\n";
  }
  return text;
}

}  // namespace meshplan::reports
