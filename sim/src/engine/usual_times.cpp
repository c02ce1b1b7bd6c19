#include "engine/usual_times.hpp"

#include <algorithm>

#include "core/statistics.hpp"
#include "program/trace/meetings.hpp"

namespace meshplan::sim {
namespace {

using program::Span;
using program::Trace;

constexpr std::size_t kEnough = 4;  // executions, to tell what is usual
constexpr double kQuick = 0.25;     // of them

}  // namespace

double busy_seconds(const Span& span, double all_arrived_s) {
  if (!program::communicates(span)) return span.end_s - span.start_s;
  return std::max(0.0, span.end_s - std::max(span.start_s, all_arrived_s));
}

UsualTimes::Likeness UsualTimes::likeness_of(const Span& span) {
  return {span.name, span.group, span.bytes, span.flops};
}

bool UsualTimes::moves(const Likeness& likeness) {
  return !std::get<1>(likeness).empty();
}

bool UsualTimes::Times::is_comparable() const {
  return seconds.size() >= kEnough && std::ranges::any_of(meeting_ranks, [&](int rank) {
           return rank != meeting_ranks.front();
         });
}

std::map<UsualTimes::Likeness, UsualTimes::Times> UsualTimes::times_of(
    const Trace& trace, const program::Meetings& meetings) {
  std::map<Likeness, Times> times;
  for (std::size_t i = 0; i < trace.spans.size(); ++i) {
    const Span& span = trace.spans[i];
    Times& alike = times[likeness_of(span)];
    const bool meets = program::communicates(span);
    alike.seconds.push_back(busy_seconds(span, meets ? meetings.of(i).all_arrived_s : 0));
    alike.meeting_ranks.push_back(meets ? trace.spans[meetings.of(i).spans.front()].rank
                                        : span.rank);
  }
  return times;
}

UsualTimes::UsualTimes(const Trace& trace, const program::Meetings& meetings,
                       const Trace* prediction) {
  std::map<Likeness, Times> own = times_of(trace, meetings), predicted;
  if (prediction != nullptr) predicted = times_of(*prediction, program::Meetings(*prediction));
  std::vector<double> computed, moved;  // measured / predicted
  for (auto& [likeness, times] : own) {
    const auto found = predicted.find(likeness);
    const double expected = found == predicted.end() ? 0 : median(found->second.seconds);
    if (expected > 0)
      (moves(likeness) ? moved : computed).push_back(quantile(times.seconds, kQuick) / expected);
  }
  const double slower = computed.empty() ? 1 : median(computed);
  // A slow network is not made the usual one.
  const double moves_slower = moved.empty() ? slower : std::min(slower, median(moved));
  for (auto& [likeness, times] : own) {
    const double quick = quantile(times.seconds, kQuick);
    const auto found = predicted.find(likeness);
    if (found == predicted.end()) {
      if (times.seconds.size() >= kEnough) usual_[likeness] = quick;
      continue;
    }
    const double expected =
        median(found->second.seconds) * (moves(likeness) ? moves_slower : slower);
    usual_[likeness] = times.is_comparable() ? quick : std::min(quick, expected);
  }
}

std::optional<double> UsualTimes::of(const Span& span) const {
  const auto found = usual_.find(likeness_of(span));
  if (found == usual_.end()) return std::nullopt;
  return found->second;
}

}  // namespace meshplan::sim
