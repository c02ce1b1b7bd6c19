#include "explain/standing_text.hpp"

#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using planner::Answer;

constexpr std::size_t kMostParts = 4;  // of a stage's memory

std::string rules_text(const std::vector<program::Violation>& broken) {
  std::vector<std::string> messages;
  for (const program::Violation& violation : broken)
    messages.push_back(fmt::format("{} ({})", violation.message, violation.rule));
  return fmt::format("breaks {}: {}", broken.size() == 1 ? "a rule" : "rules",
                     fmt::join(messages, "; "));
}

std::string difference_text(const planner::Standing& standing, const planner::TimedPlan& first) {
  const std::string parts = planner::time_differences(first.step, standing.priced->step);
  return fmt::format("{} ({:.1f} %) {}{}", planner::format_seconds(std::abs(standing.slower_by_s)),
                     100 * std::abs(standing.slower_by_s) / first.step.step_time_s,
                     standing.slower_by_s < 0 ? "faster" : "slower",
                     parts.empty() ? "" : ": " + parts);
}

std::string shortage_text(const planner::Standing& standing, const planner::TimedPlan& first,
                          double memory_reserve) {
  const planner::PricedPlan& priced = *standing.priced;
  const double usable = priced.step.usable_bytes(memory_reserve);
  const double device_lacks = priced.step.peak_memory_bytes - priced.step.capacity_bytes;
  const std::string only_reserve =
      device_lacks <= 0 ? fmt::format(", only the {:.3g} % that stay free", 100 * memory_reserve)
                        : "";
  const std::string holds = priced.step.of_host
                                ? ""  // the parts are of the device
                                : "; it holds " + largest_parts(planner::fullest_stage(priced));
  return fmt::format("does not fit: stage {} lacks {} ({}{}){}; if it fitted: {}",
                     priced.step.largest_stage, planner::format_bytes(standing.missing_bytes),
                     planner::shortage(priced.step.peak_memory_bytes, usable, priced.step.of_host),
                     only_reserve, holds, difference_text(standing, first));
}

}  // namespace

std::string largest_parts(const planner::StageMemoryParts& memory) {
  std::vector<std::string> parts;
  double rest = 0;
  for (const planner::MemoryPart& part : memory.parts)
    if (parts.size() < kMostParts)
      parts.push_back(fmt::format("{} {}", part.name, planner::format_bytes(part.bytes)));
    else
      rest += part.bytes;
  if (rest > 0) parts.push_back(fmt::format("rest {}", planner::format_bytes(rest)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string standing_text(const planner::Standing& standing, const planner::TimedPlan& first,
                          double memory_reserve) {
  switch (standing.answer) {
    case Answer::Same:
      return "the same plan";
    case Answer::BreaksRule:
      return rules_text(standing.broken);
    case Answer::DoesNotFit:
      return shortage_text(standing, first, memory_reserve);
    case Answer::Tie:
      return fmt::format("a tie: {}; differences below {} cannot be told",
                         difference_text(standing, first),
                         planner::format_seconds(standing.told_apart_s));
    case Answer::Slower:
    case Answer::Faster:
      return difference_text(standing, first);
  }
  return "";
}

}  // namespace meshplan::reports
