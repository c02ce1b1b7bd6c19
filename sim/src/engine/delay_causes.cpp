// Every wait is followed back along what its last member did before it came: each operation there
// that took longer than usual has a part in it. Where that member had waited itself, the way goes
// on at the rank that it had waited for; it ends where the ranks were last together.
#include "sim/engine/delay_causes.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "engine/usual_times.hpp"
#include "program/trace/meetings.hpp"

namespace meshplan::sim {
namespace {

using program::Span;
using program::Trace;

constexpr double kAtOnce = 1e-9;         // seconds: ends that are the same but for rounding
constexpr double kNotableWait = 1e-3;    // of the step; shorter waits are not followed
constexpr double kNotableExcess = 0.05;  // of what is usual; less is noise
constexpr std::size_t kMostHopsOfTrace = 5'000'000;
constexpr std::size_t kMostHops = 2000;  // of a way back

/// Kind, rank or least member, operation, group.
using CauseKey = std::tuple<DelayKind, int, std::string, std::string>;

/// The spans of a rank in a step.
struct RankOrder {
  std::vector<std::size_t> by_end;
  std::vector<std::size_t> by_start;
};

/// A meeting that some member waited for.
struct Wait {
  const program::Meeting* meeting = nullptr;
  int waiter = 0;  // who waited longest
  double longest = 0;
  double all = 0;  // of all members together
};

class CauseFinder {
 public:
  CauseFinder(const Trace& trace, const Trace* prediction)
      : trace_(trace), meetings_(trace), usual_(trace, meetings_, prediction) {
    for (std::size_t i = 0; i < trace.spans.size(); ++i)
      orders_[{trace.spans[i].rank, trace.spans[i].step}].by_end.push_back(i);
    for (auto& [key, order] : orders_) {
      order.by_start = order.by_end;
      std::ranges::sort(order.by_end, {}, [&](std::size_t i) { return trace_.spans[i].end_s; });
      std::ranges::sort(order.by_start, {}, [&](std::size_t i) { return trace_.spans[i].start_s; });
      steps_.insert(key.second);
      length_ = std::max(length_, trace_.spans[order.by_end.back()].end_s);
    }
  }

  std::vector<DelayCause> find() {
    for (std::size_t i = 0; i < trace_.spans.size(); ++i) note_excess(i);
    tell_slow_members();
    for (const Wait& wait : notable_waits()) {
      if (hops_left_ == 0) break;
      follow(wait);
    }
    std::vector<DelayCause> causes;
    const auto num_steps = static_cast<double>(std::max<std::size_t>(1, steps_.size()));
    for (auto& [key, cause] : causes_) {
      cause.waited_s /= num_steps;
      cause.excess_s /= num_steps;
      cause.usual_s /= num_steps;
      if (cause.waited_s + cause.excess_s > kNotableWait * length_)
        causes.push_back(std::move(cause));
    }
    std::ranges::stable_sort(causes, std::ranges::greater{}, [](const DelayCause& cause) {
      return cause.waited_s + cause.excess_s;
    });
    return causes;
  }

 private:
  /// What a span took beyond what is usual; 0 if that is within noise or not known.
  double excess(std::size_t i) const {
    const Span& span = trace_.spans[i];
    const auto usual = usual_.of(span);
    if (!usual) return 0;
    const double all_arrived = program::communicates(span) ? meetings_.of(i).all_arrived_s : 0;
    const double longer = busy_seconds(span, all_arrived) - *usual;
    return longer > kNotableExcess * *usual ? longer : 0;
  }

  int least_member(const program::Meeting& meeting) const {
    int least = trace_.spans[meeting.spans.front()].rank;
    for (const std::size_t i : meeting.spans) least = std::min(least, trace_.spans[i].rank);
    return least;
  }

  CauseKey key_of(std::size_t i) const {
    const Span& span = trace_.spans[i];
    if (!program::communicates(span)) return {DelayKind::Operation, span.rank, span.name, ""};
    return {DelayKind::Transfer, least_member(meetings_.of(i)), span.name, span.group};
  }

  DelayCause& cause_of(const CauseKey& key) {
    const auto [found, is_new] = causes_.try_emplace(key);
    DelayCause& cause = found->second;
    if (is_new) std::tie(cause.kind, cause.rank, cause.operation, cause.group) = key;
    return cause;
  }

  void note_excess(std::size_t i) {
    const double longer = excess(i);
    if (longer <= 0) return;
    DelayCause& cause = cause_of(key_of(i));
    double share = 1;
    if (program::communicates(trace_.spans[i])) {
      const program::Meeting& meeting = meetings_.of(i);
      share = 1.0 / static_cast<double>(meeting.spans.size());
      for (const std::size_t other : meeting.spans) {
        const int rank = trace_.spans[other].rank;
        if (std::ranges::find(cause.members, rank) == cause.members.end())
          cause.members.push_back(rank);
      }
    }
    cause.excess_s += longer * share;
    cause.usual_s += *usual_.of(trace_.spans[i]) * share;
    ++cause.executions;
  }

  /// A slow rank's communications are all slow, those of its partners only where it takes part.
  void tell_slow_members() {
    std::map<int, std::pair<double, double>> moved;  // by rank: beyond what is usual, and usual
    for (std::size_t i = 0; i < trace_.spans.size(); ++i) {
      const Span& span = trace_.spans[i];
      if (!program::communicates(span) || !usual_.of(span)) continue;
      moved[span.rank].first += excess(i);
      moved[span.rank].second += *usual_.of(span);
    }
    const auto slowness = [&](int rank) {
      const auto& [longer, usual] = moved[rank];
      return usual > 0 ? longer / usual : 0;
    };
    for (auto& [key, cause] : causes_) {
      if (cause.kind != DelayKind::Transfer) continue;
      std::ranges::sort(cause.members);
      cause.rank = *std::ranges::max_element(cause.members, {}, slowness);
    }
  }

  /// The span of a rank that ended last at or before a time.
  std::optional<std::size_t> last_before(int rank, int step, double time) const {
    const auto order = orders_.find({rank, step});
    if (order == orders_.end()) return std::nullopt;
    const auto& by_end = order->second.by_end;
    const auto after = std::ranges::upper_bound(
        by_end, time + kAtOnce, {}, [&](std::size_t i) { return trace_.spans[i].end_s; });
    if (after == by_end.begin()) return std::nullopt;
    return *std::prev(after);
  }

  static bool is_member(const Trace& trace, const program::Meeting& meeting, int rank) {
    return std::ranges::any_of(meeting.spans,
                               [&](std::size_t i) { return trace.spans[i].rank == rank; });
  }

  /// What led to the arrival of a meeting's last member: seconds beyond what is usual, by cause.
  std::map<CauseKey, double> way_back(const program::Meeting& meeting, int waiter, double waited) {
    std::map<CauseKey, double> parts;
    const int step = trace_.spans[meeting.spans.front()].step;
    int rank = meeting.last_rank;
    double time = meeting.all_arrived_s, sum = 0;
    for (std::size_t hop = 0; hop < kMostHops && hops_left_ > 0 && sum < waited; ++hop) {
      --hops_left_;
      const auto last = last_before(rank, step, time);
      const double gap = time - (last ? trace_.spans[*last].end_s : 0);
      if (gap > kNotableWait * length_) {
        const auto next = next_of(rank, step, time);
        parts[{DelayKind::Gap, rank, next ? trace_.spans[*next].name : "", ""}] += gap;
        sum += gap;
      }
      if (!last) break;
      const Span& span = trace_.spans[*last];
      if (const double longer = excess(*last); longer > 0) {
        parts[key_of(*last)] += longer;
        sum += longer;
      }
      // Spans that began as late as they ended lead nowhere else.
      time = std::min(span.start_s, time - kAtOnce);
      if (!program::communicates(span)) continue;
      const program::Meeting& earlier = meetings_.of(*last);
      if (earlier.last_rank != rank && earlier.all_arrived_s > span.start_s + kAtOnce) {
        rank = earlier.last_rank;
        time = earlier.all_arrived_s;
      }
      if (is_member(trace_, earlier, waiter)) break;
    }
    return parts;
  }

  /// The first span of a rank that begins at or after a time.
  std::optional<std::size_t> next_of(int rank, int step, double time) const {
    const auto& by_start = orders_.at({rank, step}).by_start;
    const auto next = std::ranges::lower_bound(
        by_start, time - kAtOnce, {}, [&](std::size_t i) { return trace_.spans[i].start_s; });
    if (next == by_start.end()) return std::nullopt;
    return *next;
  }

  Wait wait_of(const program::Meeting& meeting) const {
    Wait wait{.meeting = &meeting, .waiter = meeting.last_rank};
    for (const std::size_t i : meeting.spans) {
      const Span& span = trace_.spans[i];
      const double waited =
          std::clamp(meeting.all_arrived_s - span.start_s, 0.0, span.end_s - span.start_s);
      wait.all += waited;
      if (waited <= wait.longest) continue;
      wait.longest = waited;
      wait.waiter = span.rank;
    }
    return wait;
  }

  /// The longest first.
  std::vector<Wait> notable_waits() const {
    std::vector<Wait> waits;
    for (const program::Meeting& meeting : meetings_.all())
      if (const Wait wait = wait_of(meeting); wait.longest > kNotableWait * length_)
        waits.push_back(wait);
    std::ranges::stable_sort(waits, std::ranges::greater{}, &Wait::longest);
    return waits;
  }

  void follow(const Wait& wait) {
    const auto& [meeting, waiter, longest, all] = wait;
    const std::map<CauseKey, double> parts = way_back(*meeting, waiter, longest);
    double known = 0;
    for (const auto& [key, seconds] : parts) known += seconds;
    const double share = known > longest ? all / known : all / longest;
    for (const auto& [key, seconds] : parts) {
      DelayCause& cause = cause_of(key);
      cause.waited_s += seconds * share;
      if (cause.kind == DelayKind::Gap) {
        cause.excess_s = std::max(cause.excess_s, seconds);
        ++cause.executions;
      }
    }
    if (known < longest)
      cause_of({DelayKind::Schedule, 0, "", ""}).waited_s += all * (1 - known / longest);
  }

  const Trace& trace_;
  program::Meetings meetings_;
  UsualTimes usual_;
  std::map<std::pair<int, int>, RankOrder> orders_;  // by rank and step
  std::set<int> steps_;
  double length_ = 0;                         // of the longest step
  std::size_t hops_left_ = kMostHopsOfTrace;  // shorter waits are not followed when it is 0
  std::map<CauseKey, DelayCause> causes_;
};

}  // namespace

std::vector<DelayCause> delay_causes(const Trace& trace, const Trace* prediction) {
  return CauseFinder(trace, prediction).find();
}

}  // namespace meshplan::sim
