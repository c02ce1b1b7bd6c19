#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/units.hpp"
#include "engine/player.hpp"

namespace meshplan::sim {
namespace {

class LanePlayer final : public Player {
 public:
  LanePlayer(Play& play, const Cluster& cluster, const SimulationOptions& options)
      : Player(play, cluster, options),
        lanes_(play.ranks.size() * program::kNumLanes),
        hosts_(play.ranks.size()),
        plays_runs_(!options.record_spans) {
    for (int rank = 0; rank < static_cast<int>(play.ranks.size()); ++rank) {
      hosts_[at(rank)].left.fill(num_instances(rank));
      const Device& device = device_of(cluster, node_type(cluster, play.ranks[at(rank)].rank));
      hosts_[at(rank)].issue_seconds = device.host_issue_us / kMicroseconds;
    }
  }

 private:
  struct LaneState {
    int next = 0;  // into the lane's order
    int step = 0;
    bool busy = false;
    int run = 1;  // operations in progress: more than one where a run is played at once
  };
  struct HostState {
    double issue_seconds = 0;       // of an operation
    std::array<double, 2> begin{};  // when it began to issue a step, by parity
    int step_begun = 0;
    int steps_finished = 0;
    std::array<double, 2> finished{};  // when a step was over, by parity
    std::array<int, 2> left{};         // instances of a step that are not done, by parity
    double timer = -1;                 // of the earliest timer that is set
    double waited = -1;                // until when the first step last waited for it
  };

  const std::vector<int>& order(int rank, int lane) const {
    return tables(rank).lane_order[at(lane)];
  }

  void proceed(int rank, LaneMask lanes) override {
    for (; lanes != 0 && !stopped_; lanes &= lanes - 1) try_lane(rank, std::countr_zero(lanes));
  }

  /// The next batch is loaded into the buffer of the one before, and ZeRO gathers what the
  /// optimizer of the step before has updated: not before that step is over.
  bool may_advance(int rank, int lane, int step) const {
    if (!may_begin(step)) return false;
    const auto which = static_cast<program::Lane>(lane);
    return (which != program::Lane::Host && which != program::Lane::Dp) ||
           hosts_[at(rank)].steps_finished >= step;
  }

  void try_lane(int rank, int lane) {
    const std::vector<int>& instances = order(rank, lane);
    LaneState& state = lanes_[at(rank * program::kNumLanes + lane)];
    if (instances.empty() || state.busy) return;
    if (state.next == static_cast<int>(instances.size())) {
      if (!may_advance(rank, lane, state.step + 1)) return;
      state.next = 0;
      ++state.step;
    }
    const int instance = instances[at(state.next)];
    if (!waits_done(rank, instance, state.step) || !is_issued(rank, instance, state.step)) return;
    state.busy = true;
    if (target(rank, instance) >= 0) {
      begin_run(rank, lane, state);
    } else if (const int activity = arrive(rank, instance, state.step); all_arrived(activity)) {
      start_meeting(activity);
    }
  }

  /// Operations of the compute lane of which only the end of the last one matters, if the host has
  /// issued them all: one event instead of many.
  void begin_run(int rank, int lane, LaneState& state) {
    const std::vector<int>& instances = order(rank, lane);
    const int first = instances[at(state.next)];
    state.run = 1;
    if (plays_runs_ && lane == static_cast<int>(program::Lane::Compute)) {
      const int end = tables(rank).run_end[at(state.next)];
      if (issue_time(rank, instances[at(end - 1)], state.step) <= now_)
        state.run = end - state.next;
    }
    double seconds = 0;
    for (int i = 0; i < state.run; ++i)
      seconds += play_.works[at(target(rank, instances[at(state.next + i)]))].seconds;
    begin_work(rank, lane, first, state.step, seconds);
  }

  double issue_time(int rank, int instance, int step) const {
    const HostState& host = hosts_[at(rank)];
    return host.begin[at(step & 1)] + tables(rank).issued[at(instance)] * host.issue_seconds;
  }

  /// The host issues operations one after another; it begins a step when it has issued the one
  /// before and the step before that is over.
  bool is_issued(int rank, int instance, int step) {
    HostState& host = hosts_[at(rank)];
    if (host.issue_seconds == 0) return true;
    if (step > host.step_begun) {
      const double issued =
          host.begin[at((step - 1) & 1)] + tables(rank).issued.back() * host.issue_seconds;
      host.begin[at(step & 1)] = std::max(issued, host.finished[at(step & 1)]);
      host.step_begun = step;
    }
    const double when = issue_time(rank, instance, step);
    if (when <= now_) return true;
    if (step == 0) host.waited = std::max(host.waited, when);
    if (host.timer <= now_ || when < host.timer) {
      host.timer = when;
      set_timer(rank, when);
    }
    return false;
  }

  LaneMask part_done(int rank, int instance, int /*activity*/) override {
    const int lane = tables(rank).lane[at(instance)];
    LaneState& state = lanes_[at(rank * program::kNumLanes + lane)];
    state.busy = false;
    int last = instance;
    for (int i = 1; i < state.run; ++i) {
      last = order(rank, lane)[at(state.next + i)];
      note_start(rank, last, state.step);
      mark_done(rank, last, state.step);
    }
    state.next += state.run;
    HostState& host = hosts_[at(rank)];
    int& left = host.left[at(state.step & 1)];
    left -= std::exchange(state.run, 1);
    if (left > 0) return tables(rank).wakes[at(last)];
    left = num_instances(rank);
    ++host.steps_finished;
    host.finished[at(state.step & 1)] = now_;
    finish_step(rank, state.step);
    return kAllLanes;
  }

  // ------------------------------------------------------------ the second step

  bool is_as_in_first_step(double later) const override {
    const FirstStep first{
        .later = later, .now = now_ - later, .rounding = kRounding * end_of_first_step()};
    double begin = now_;  // of what is in progress
    for (int rank = 0; rank < static_cast<int>(hosts_.size()); ++rank) {
      if (!is_issued_as(first, rank)) return false;
      for (int lane = 0; lane < program::kNumLanes; ++lane)
        if (!order(rank, lane).empty() && !is_lane_as(first, rank, lane, begin)) return false;
    }
    if (begin < end_of_first_step()) return false;
    for (int rank = 0; rank < static_cast<int>(hosts_.size()); ++rank)
      for (int lane = 0; lane < program::kNumLanes; ++lane)
        if (!was_beside_as(first, rank, lane, begin)) return false;
    return true;
  }

  static constexpr double kRounding = 1e-12;  // of a step
  struct FirstStep {
    double later = 0;  // the second one is, seconds
    double now = 0;    // this instant there
    double rounding = 0;
    bool is_past(double time) const { return time <= now + rounding; }
    bool is_same(double time, double second) const {
      return std::abs(second - later - time) <= rounding;
    }
  };

  /// What is issued earlier than in the first step changes nothing where that does not wait for it.
  bool is_issued_as(const FirstStep& first, int rank) const {
    const HostState& host = hosts_[at(rank)];
    if (host.issue_seconds == 0) return true;
    if (host.step_begun != 1 || host.begin[1] > first.later + first.rounding) return false;
    return first.is_same(0, host.begin[1]) || first.is_past(host.waited);
  }

  /// When what an instance is, or is part of, began.
  double begin_in(int step, int rank, int instance) const {
    if (target(rank, instance) >= 0) return start_in(step, rank, instance);
    const Meeting& meeting = play_.meetings[at(~target(rank, instance))];
    double last = 0;
    for (int m = 0; m < meeting.num_members; ++m) {
      const Member& member = play_.members[meeting.members_begin + at(m)];
      last = std::max(last, start_in(step, member.rank, member.instance));
    }
    return last;
  }

  /// @param begin  of what is in progress on the lanes so far; becomes that of these and this one
  bool is_lane_as(const FirstStep& first, int rank, int lane, double& begin) const {
    const LaneState& state = lanes_[at(rank * program::kNumLanes + lane)];
    const std::vector<int>& instances = order(rank, lane);
    if (state.step != 1) return false;
    if (state.next > 0 && !first.is_past(end_in(0, rank, instances[at(state.next - 1)])))
      return false;
    if (state.next == static_cast<int>(instances.size())) return true;
    const int head = instances[at(state.next)];
    if (first.is_past(end_in(0, rank, head)) ||
        first.is_past(start_in(0, rank, head)) != state.busy)
      return false;
    if (!state.busy) return true;
    const int meeting = ~target(rank, head);
    const bool waits = meeting >= 0 && !all_arrived(activity_of(meeting, /*step=*/1));
    const double before = begin_in(0, rank, head);
    if (waits) return !first.is_past(before);
    const double own = begin_in(1, rank, head);
    begin = std::min(begin, own);
    return first.is_same(before, own);
  }

  /// Since then, has the lane run what it ran in the first step, when it ran it there?
  bool was_beside_as(const FirstStep& first, int rank, int lane, double since) const {
    const LaneState& state = lanes_[at(rank * program::kNumLanes + lane)];
    for (int i = state.next; i-- > 0;) {
      const int instance = order(rank, lane)[at(i)];
      const double end = end_in(1, rank, instance);
      if (end < since - first.rounding) return true;
      if (!first.is_same(end_in(0, rank, instance), end)) return false;
      const double begin = begin_in(1, rank, instance), before = begin_in(0, rank, instance);
      if (begin > since ? !first.is_same(before, begin)
                        : before > since - first.later + first.rounding)
        return false;
    }
    return true;
  }

  std::string stuck(int rank) const override {
    for (int lane = 0; lane < program::kNumLanes; ++lane) {
      const LaneState& state = lanes_[at(rank * program::kNumLanes + lane)];
      if (state.next == static_cast<int>(order(rank, lane).size())) continue;
      const program::Program& program = *tables(rank).program;
      const auto& instance = program.instances[at(order(rank, lane)[at(state.next)])];
      return program::text_of(program, instance);
    }
    return {};
  }

  std::vector<LaneState> lanes_;
  std::vector<HostState> hosts_;
  bool plays_runs_;
};

}  // namespace

std::unique_ptr<Player> make_lane_player(Play& play, const Cluster& cluster,
                                         const SimulationOptions& options) {
  return std::make_unique<LanePlayer>(play, cluster, options);
}

}  // namespace meshplan::sim
