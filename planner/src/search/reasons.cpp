#include "planner/search/reasons.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/units.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::planner {
namespace {

using sim::Category;

constexpr double kSmallestPart = 0.03;  // of the largest difference
constexpr double kRounding = 1e-9;      // of a time: sums of the same numbers in another order

std::string words_for(Category category) {
  switch (category) {
    case Category::Tp:
    case Category::Sp:
    case Category::Cp:
    case Category::Ep:
    case Category::Pp:
    case Category::Dp:
      return fmt::format("exposed {}", sim::name_of(category));
    default:
      return std::string(sim::name_of(category));
  }
}

std::string percent(double part, double whole) {
  return fmt::format("{:.1f} %", 100 * part / whole);
}

std::string bubble_reason(const program::Plan& plan, double bubble, double step) {
  const int pp = plan.parallel.pp;
  const int num_microbatches = plan.num_microbatches();
  const std::string size = fmt::format("bubble {} of the step: {} stages, {} micro-batches",
                                       percent(bubble, step), pp, num_microbatches);
  // Narayanan et al. 2021, section 2.2; the zero-bubble schedules have their own formulas.
  const int vpp = plan.parallel.vpp;
  switch (plan.schedule) {
    case program::ScheduleKind::GPipe:
    case program::ScheduleKind::OneFOneB:
      return fmt::format("{} (ideal (pp-1)/(m+pp-1) = {})", size,
                         percent(pp - 1, num_microbatches + pp - 1));
    case program::ScheduleKind::Interleaved:
      return fmt::format("{}, {} chunks a rank (ideal (pp-1)/(m vpp+pp-1) = {})", size, vpp,
                         percent(pp - 1, num_microbatches * vpp + pp - 1));
    default:
      return fmt::format("{}, schedule {}", size, name_of(plan.schedule));
  }
}

std::string exposed_communication(const sim::Breakdown& seconds, double step) {
  std::vector<std::string> parts;
  for (const Category category :
       {Category::Tp, Category::Sp, Category::Cp, Category::Ep, Category::Pp, Category::Dp})
    if (seconds[category] > 0)
      parts.push_back(
          fmt::format("{} {}", sim::name_of(category), percent(seconds[category], step)));
  return parts.empty() ? "all communication is hidden"
                       : fmt::format("exposed communication: {}", fmt::join(parts, ", "));
}

}  // namespace

std::vector<DifferencePart> difference_parts(const sim::StepPrediction& first,
                                             const sim::StepPrediction& other) {
  std::vector<DifferencePart> parts;
  double largest = 0;
  for (const Category category : sim::all_categories()) {
    const double difference = other.seconds[category] - first.seconds[category];
    if (std::abs(difference) > kRounding * first.seconds[category])
      parts.push_back({words_for(category), difference});
    largest = std::max(largest, std::abs(difference));
  }
  std::ranges::stable_sort(parts, std::ranges::greater{},
                           [](const DifferencePart& part) { return std::abs(part.seconds); });
  const auto small = std::ranges::find_if(parts, [&](const DifferencePart& part) {
    return std::abs(part.seconds) < kSmallestPart * largest;
  });
  if (parts.end() - small < 2) return parts;
  double rest = 0;
  for (auto part = small; part != parts.end(); ++part) rest += part->seconds;
  parts.erase(small, parts.end());
  parts.push_back({"rest", rest});
  return parts;
}

std::string time_differences(const sim::StepPrediction& first, const sim::StepPrediction& other) {
  std::vector<std::string> words;
  for (const DifferencePart& part : difference_parts(first, other))
    words.push_back(fmt::format("{} {}", part.name, signed_seconds(part.seconds)));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::vector<std::string> own_reasons(const RankedPlan& ranked) {
  const sim::StepPrediction& shown = ranked.step();
  const double step = shown.step_time_s;
  std::vector<std::string> reasons;
  if (ranked.plan.parallel.pp > 1)
    reasons.push_back(bubble_reason(ranked.plan, shown.seconds[Category::Bubble], step));
  if (ranked.plan.parallel.world_size() > 1)
    reasons.push_back(exposed_communication(shown.seconds, step));
  if (shown.seconds[Category::Recompute] > 0)
    reasons.push_back(
        fmt::format("recompute {} of the step", percent(shown.seconds[Category::Recompute], step)));
  if (!ranked.plan.layers_per_stage.empty())
    reasons.push_back(
        fmt::format("layers per stage {}", fmt::join(ranked.plan.layers_per_stage, ",")));
  reasons.push_back(fmt::format(
      "fits: {} of {}{}", format_bytes(shown.peak_memory_bytes), format_bytes(shown.capacity_bytes),
      ranked.plan.parallel.pp > 1 ? fmt::format(" on stage {}", shown.largest_stage)
                                  : std::string()));
  return reasons;
}

std::string format_seconds(double seconds) {
  const double magnitude = std::abs(seconds);
  if (magnitude >= 10) return fmt::format("{:.1f} s", seconds);
  if (magnitude >= 1) return fmt::format("{:.2f} s", seconds);
  const double milliseconds = seconds * kMilliseconds;
  if (magnitude >= 0.1) return fmt::format("{:.0f} ms", milliseconds);
  if (magnitude >= 0.001) return fmt::format("{:.1f} ms", milliseconds);
  return fmt::format("{:.1f} us", seconds * kMicroseconds);
}

std::string format_duration(double seconds) {
  struct Unit {
    double seconds;
    const char* name;
  };
  constexpr Unit kYear{365.25 * 86400, "years"}, kDay{86400, "days"}, kHour{3600, "h"},
      kMinute{60, "min"};
  for (const Unit& unit : {kYear, kDay, kHour, kMinute})
    if (seconds >= 2 * unit.seconds)
      return fmt::format("{:.3g} {}", seconds / unit.seconds, unit.name);
  return format_seconds(seconds);
}

std::string signed_seconds(double seconds) {
  return fmt::format("{}{}", seconds < 0 ? "-" : "+", format_seconds(std::abs(seconds)));
}

std::string format_bytes(double bytes) {
  if (bytes >= kGib) return fmt::format("{:.1f} GiB", bytes / kGib);
  return fmt::format("{:.1f} MiB", bytes / kMib);
}

std::string shortage(double needed_bytes, double available_bytes, bool of_host) {
  const std::string needed = format_bytes(needed_bytes), available = format_bytes(available_bytes);
  const std::string_view where = of_host ? " of its host's memory" : "";
  if (needed != available) return fmt::format("{} > {}{}", needed, available, where);
  return fmt::format("{} > {} bytes{}", static_cast<std::int64_t>(std::ceil(needed_bytes)),
                     static_cast<std::int64_t>(available_bytes), where);
}

}  // namespace meshplan::planner
