#include <algorithm>

#include "core/units.hpp"
#include "engine/player.hpp"

namespace meshplan::sim {
namespace {

class HostPlayer final : public Player {
 public:
  HostPlayer(Play& play, const Cluster& cluster, const SimulationOptions& options)
      : Player(play, cluster, options),
        wake_seconds_(cluster.oversubscribed()
                          ? cluster.communication.oversubscription_wake_us / kMicroseconds
                          : 0),
        background_(play.stages.front().program->plan.progress_thread),
        in_flight_(background_ ? 2 : 1),
        ranks_(play.ranks.size()) {}

 private:
  enum class Status { Ready, Computing, Waiting, Waking };
  /// A communication that its rank has started.
  struct Posted {
    int activity = 0;
    int instance = 0;
  };
  struct RankState {
    Status status = Status::Ready;
    int next = 0;
    int step = 0;
    double wakes_at = 0;
    bool needs_wake = false;
    std::vector<Posted> posted = {};  // that are not over
  };

  RankState& state(int rank) { return ranks_[at(rank)]; }

  /// Does the rank copy? In a transfer the receiver alone does.
  bool takes_part(int rank, int activity) const {
    const Meeting& meeting = meeting_of(activity);
    return meeting.receiver < 0 || meeting.receiver == rank;
  }

  /// Messages between stages leave when they can; the others of a lane go one after the other, as
  /// the executor issues them (runtime/src/execute/issue_order.cpp), two at once with a thread.
  static bool is_ordered(int lane) {
    const auto which = static_cast<program::Lane>(lane);
    return program::exchanges_within_stage(which) || which == program::Lane::Dp;
  }

  /// May an instance begin, as far as its lane and those that it waits for are concerned? What was
  /// posted on a lane before an instance that it waits for must be over, too.
  bool lanes_done(int rank, int instance) const {
    const StageTables& table = tables(rank);
    const auto lane_of = [&](int other) { return table.lane[at(other)]; };
    const bool posts = target(rank, instance) < 0;
    int on_lane = 0;
    for (const Posted& posted : ranks_[at(rank)].posted) {
      const int lane = lane_of(posted.instance);
      if (!is_ordered(lane)) continue;
      if (posts && lane == lane_of(instance) && ++on_lane >= in_flight_) return false;
      for (int w = table.wait_begin[at(instance)]; w < table.wait_begin[at(instance) + 1]; ++w) {
        const int earlier = table.waits[at(w)];
        if (lane == lane_of(earlier) && posted.instance <= earlier) return false;
      }
    }
    return true;
  }

  void try_start(int activity) {
    const Meeting& meeting = meeting_of(activity);
    const int needed = meeting.receiver < 0 ? meeting.num_members : 1;
    if (all_arrived(activity) && (background_ || state_of(activity).waiting == needed) &&
        !play_.resources.is_active(activity))
      start_meeting(activity);
  }

  void wait(int rank) {
    state(rank).status = Status::Waiting;
    for (const auto& [activity, instance] : state(rank).posted) {
      if (!takes_part(rank, activity)) continue;
      ++state_of(activity).waiting;
      try_start(activity);
    }
  }

  void stop_waiting(int rank) {
    for (const auto& [activity, instance] : state(rank).posted) {
      if (!takes_part(rank, activity)) continue;
      --state_of(activity).waiting;
      if (!background_ && play_.resources.is_active(activity)) pause_meeting(activity);
    }
  }

  bool can_go_on(int rank) const {
    const RankState& own = ranks_[at(rank)];
    if (own.next == num_instances(rank)) return own.posted.empty();
    return waits_done(rank, own.next, own.step) && lanes_done(rank, own.next);
  }

  void proceed(int rank, LaneMask /*lanes*/) override {
    RankState& own = state(rank);
    if (own.status == Status::Computing) return;
    if (own.status == Status::Waiting) {
      if (!can_go_on(rank)) return;
      stop_waiting(rank);
      own.status = Status::Ready;
      if (own.needs_wake && wake_seconds_ > 0) {
        own.status = Status::Waking;
        own.wakes_at = now_ + wake_seconds_;
        set_timer(rank, own.wakes_at);
        return;
      }
    }
    if (own.status == Status::Waking) {
      if (now_ < own.wakes_at) return;
      own.status = Status::Ready;
    }
    run(rank);
  }

  /// Issues instances until one computes, or waits for what is not done.
  void run(int rank) {
    RankState& own = state(rank);
    while (!stopped_) {
      if (own.next == num_instances(rank)) {
        if (own.posted.empty()) {
          finish_step(rank, own.step);
          own.next = 0;
          ++own.step;
        } else {
          wait(rank);
          return;
        }
      }
      if (!may_begin(own.step)) return;
      if (!waits_done(rank, own.next, own.step) || !lanes_done(rank, own.next)) {
        own.needs_wake = false;
        wait(rank);
        return;
      }
      const int instance = own.next++;
      if (target(rank, instance) >= 0) {
        own.status = Status::Computing;
        begin_work(rank, tables(rank).lane[at(instance)], instance, own.step);
        return;
      }
      const int activity = arrive(rank, instance, own.step);
      own.posted.push_back({activity, instance});
      try_start(activity);
    }
  }

  LaneMask part_done(int rank, int /*instance*/, int activity) override {
    RankState& own = state(rank);
    const auto place = std::ranges::find(own.posted, activity, &Posted::activity);
    if (place == own.posted.end()) {  // it computed
      own.status = Status::Ready;
    } else {
      own.needs_wake = !meeting_of(activity).includes_wake;
      own.posted.erase(place);
    }
    return kAllLanes;
  }

  std::string stuck(int rank) const override {
    const program::Program& program = *tables(rank).program;
    const RankState& own = ranks_[at(rank)];
    if (own.next == num_instances(rank)) return "the end of its step";
    return program::text_of(program, program.instances[at(own.next)]);
  }

  double wake_seconds_;
  bool background_;  // a thread beside each rank's own moves what all members have posted
  int in_flight_;    // communications of a lane
  std::vector<RankState> ranks_;
};

}  // namespace

std::unique_ptr<Player> make_host_player(Play& play, const Cluster& cluster,
                                         const SimulationOptions& options) {
  return std::make_unique<HostPlayer>(play, cluster, options);
}

}  // namespace meshplan::sim
