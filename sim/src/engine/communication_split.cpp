#include "sim/engine/communication_split.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "core/statistics.hpp"
#include "program/trace/meetings.hpp"

namespace meshplan::sim {
namespace {

using program::Lane;
using program::Span;
using program::Trace;

struct TimeRange {
  double begin = 0;
  double end = 0;
};

/// The times in which a rank computes in a step: apart from each other, ascending.
class ComputingTimes {
 public:
  void add(double begin, double end) { ranges_.push_back({begin, end}); }

  void join() {
    std::ranges::sort(ranges_, {}, &TimeRange::begin);
    std::vector<TimeRange> joined;
    for (const TimeRange& range : ranges_)
      if (!joined.empty() && range.begin <= joined.back().end)
        joined.back().end = std::max(joined.back().end, range.end);
      else
        joined.push_back(range);
    ranges_ = std::move(joined);
  }

  double seconds_between(double begin, double end) const {
    double sum = 0;
    for (auto range = first_after(begin); range != ranges_.end() && range->begin < end; ++range)
      sum += std::min(end, range->end) - std::max(begin, range->begin);
    return sum;
  }

  /// Calls change(time) where computing begins or ends.
  template <class Change>
  void for_each_change(double begin, double end, Change change) const {
    for (auto range = first_after(begin); range != ranges_.end() && range->begin < end; ++range) {
      change(range->begin);
      change(range->end);
    }
  }

 private:
  std::vector<TimeRange>::const_iterator first_after(double time) const {
    return std::ranges::upper_bound(ranges_, time, {}, &TimeRange::end);
  }

  std::vector<TimeRange> ranges_;
};

using RankStep = std::pair<int, int>;

std::map<RankStep, ComputingTimes> computing_times(const Trace& trace) {
  std::map<RankStep, ComputingTimes> times;
  for (const Span& span : trace.spans)
    if (span.lane == Lane::Compute) times[{span.rank, span.step}].add(span.start_s, span.end_s);
  for (auto& [key, own] : times) own.join();
  return times;
}

/// A communication of one rank, from its start on.
struct Movement {
  double start = 0;
  double ready = 0;  // the last member has come, or the rank has stopped waiting
  double end = 0;
  double computing = 0;        // of [ready, end]: the rank computes beside it
  double slowed_fraction = 0;  // of `computing`: what it is the slower for
};

using Likeness = std::tuple<std::string, std::string, std::int64_t>;
Likeness likeness_of(const Span& span) {
  return {span.name, span.group, span.bytes};
}

/// Movements of a trace by the number of their span, not yet told how slowed they are.
std::map<std::size_t, Movement> movements_of(const Trace& trace) {
  const program::Meetings meetings(trace);
  const auto computing = computing_times(trace);
  std::map<std::size_t, Movement> movements;
  for (std::size_t i = 0; i < trace.spans.size(); ++i) {
    const Span& span = trace.spans[i];
    if (!program::communicates(span)) continue;
    const double ready = std::clamp(meetings.of(i).all_arrived_s, span.start_s, span.end_s);
    const auto own = computing.find({span.rank, span.step});
    movements[i] = {
        .start = span.start_s,
        .ready = ready,
        .end = span.end_s,
        .computing = own == computing.end() ? 0 : own->second.seconds_between(ready, span.end_s)};
  }
  return movements;
}

/// What the quicker of all alike take to move.
std::map<Likeness, double> quicker_of_alike(const Trace& trace,
                                            const std::map<std::size_t, Movement>& movements,
                                            bool only_undisturbed) {
  constexpr double kUndisturbed = 0.05;  // of the time that it moves
  constexpr double kQuicker = 0.25;
  std::map<Likeness, std::vector<double>> seconds;
  for (const auto& [i, movement] : movements) {
    const double moving = movement.end - movement.ready;
    if (!only_undisturbed || movement.computing <= kUndisturbed * moving)
      seconds[likeness_of(trace.spans[i])].push_back(moving);
  }
  std::map<Likeness, double> quicker;
  for (auto& [likeness, values] : seconds) quicker[likeness] = quantile(values, kQuicker);
  return quicker;
}

/// What each kind of communication takes alone, by the best that is known of it.
std::map<Likeness, double> seconds_alone(const Trace& trace,
                                         const std::map<std::size_t, Movement>& movements,
                                         const Trace* prediction) {
  std::map<Likeness, double> alone = quicker_of_alike(trace, movements, true);
  if (prediction != nullptr)
    alone.merge(quicker_of_alike(*prediction, movements_of(*prediction), false));
  alone.merge(quicker_of_alike(trace, movements, false));
  return alone;
}

void tell_slowdown(Movement& movement, double alone) {
  if (movement.computing <= 0) return;
  const double longer = movement.end - movement.ready - alone;
  movement.slowed_fraction = std::clamp(longer / movement.computing, 0.0, 1.0);
}

/// Adds up the time in which any movement is in progress, each instant once: what moves counts
/// before what waits, and of several the one that ends first.
CommunicationSplit time_in_progress(std::vector<Movement> movements,
                                    const ComputingTimes& computing) {
  std::ranges::sort(movements, {}, &Movement::start);
  std::set<double> changes;
  const auto note = [&](double time) { changes.insert(time); };
  for (const Movement& movement : movements) {
    for (const double time : {movement.start, movement.ready, movement.end}) note(time);
    computing.for_each_change(movement.ready, movement.end, note);
  }
  CommunicationSplit split;
  std::vector<const Movement*> active;
  std::size_t next = 0;
  for (auto begin = changes.begin(); begin != changes.end(); ++begin) {
    const auto end = std::next(begin);
    if (end == changes.end()) break;
    while (next < movements.size() && movements[next].start <= *begin)
      active.push_back(&movements[next++]);
    std::erase_if(active, [&](const Movement* movement) { return movement->end <= *begin; });
    const Movement* moving = nullptr;
    for (const Movement* movement : active)
      if (movement->ready <= *begin && (moving == nullptr || movement->end < moving->end))
        moving = movement;
    const double seconds = *end - *begin;
    if (moving == nullptr) {
      if (!active.empty()) split.waiting_s += seconds;
      continue;
    }
    const double slowed = moving->slowed_fraction * computing.seconds_between(*begin, *end);
    split.slowdown_s += slowed;
    split.transfer_s += seconds - slowed;
  }
  return split;
}

}  // namespace

std::vector<RankCommunication> split_communication(const Trace& trace, const Trace* prediction) {
  std::map<std::size_t, Movement> movements = movements_of(trace);
  const std::map<Likeness, double> alone = seconds_alone(trace, movements, prediction);
  std::map<std::tuple<int, int, std::string>, std::vector<Movement>> groups;
  std::set<int> steps;
  for (const Span& span : trace.spans) steps.insert(span.step);
  for (auto& [i, movement] : movements) {
    const Span& span = trace.spans[i];
    tell_slowdown(movement, alone.at(likeness_of(span)));
    groups[{span.rank, span.step, span.group}].push_back(movement);
  }
  const auto computing = computing_times(trace);
  const auto num_steps = static_cast<double>(std::max<std::size_t>(1, steps.size()));
  std::vector<RankCommunication> ranks;
  for (auto& [key, own] : groups) {
    const auto& [rank, step, group] = key;
    const auto times = computing.find({rank, step});
    const CommunicationSplit split = time_in_progress(
        std::move(own), times == computing.end() ? ComputingTimes{} : times->second);
    if (ranks.empty() || ranks.back().rank != rank) ranks.push_back({.rank = rank, .groups = {}});
    CommunicationSplit& sum = ranks.back().groups[group];
    sum.waiting_s += split.waiting_s / num_steps;
    sum.transfer_s += split.transfer_s / num_steps;
    sum.slowdown_s += split.slowdown_s / num_steps;
  }
  return ranks;
}

std::map<std::string, CommunicationSplit> mean_of(const std::vector<RankCommunication>& ranks) {
  std::map<std::string, CommunicationSplit> mean;
  for (const RankCommunication& rank : ranks)
    for (const auto& [group, split] : rank.groups) {
      CommunicationSplit& sum = mean[group];
      const auto num_ranks = static_cast<double>(ranks.size());
      sum.waiting_s += split.waiting_s / num_ranks;
      sum.transfer_s += split.transfer_s / num_ranks;
      sum.slowdown_s += split.slowdown_s / num_ranks;
    }
  return mean;
}

}  // namespace meshplan::sim
