#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/play.hpp"

namespace meshplan::sim {

/// Start and end of every instance of a simulated rank in one step; empty unless asked for.
struct PlayedStep {
  std::vector<double> start;  // by rank of the play and instance, see `offset`
  std::vector<double> end;
};

struct Outcome {
  std::vector<double> step_ends;  // when the last rank finished each step
  bool periodic = false;
  std::int64_t events = 0;
  PlayedStep last;                  // of the last step
  std::vector<std::size_t> offset;  // of such a rank's instances in `last`
};

/// The event loop: operations begin when their device and partners let them, share resources while
/// they run, and end in the order of (time, activity). How a rank proceeds through its program is
/// the difference between the two kinds below.
class Player {
 public:
  Player(Play& play, const Cluster& cluster, const SimulationOptions& options);
  virtual ~Player() = default;
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  /// @throws InvariantError if nothing can proceed before the last step ends
  Outcome run();

 protected:
  using Index = std::size_t;
  static Index at(int i) { return static_cast<Index>(i); }

  /// Something happened that these lanes of a rank may have waited for.
  virtual void proceed(int rank, LaneMask lanes) = 0;
  /// This rank's part of an activity is over. @returns lanes that may have waited for it
  virtual LaneMask part_done(int rank, int instance, int activity) = 0;
  /// Words for a rank that cannot proceed.
  virtual std::string stuck(int rank) const = 0;
  /// In the second step, when all that happens at this instant has happened: is everything that is
  /// in progress, and that decides what follows, as it was in the first step so many seconds
  /// earlier?
  virtual bool is_as_in_first_step(double /*later*/) const { return false; }

  const StageTables& tables(int rank) const {
    return play_.stages[at(play_.ranks[at(rank)].stage)];
  }
  int target(int rank, int instance) const { return play_.ranks[at(rank)].target[at(instance)]; }
  int num_instances(int rank) const { return static_cast<int>(tables(rank).lane.size()); }
  bool waits_done(int rank, int instance, int step) const;
  /// May a rank begin `step`? Ranks are at most one step apart.
  bool may_begin(int step) const { return step <= steps_finished_ + 1; }

  /// @param seconds  at full speed; absent: those of the instance alone
  void begin_work(int rank, int lane, int instance, int step, std::optional<double> seconds = {});
  /// @returns the meeting's activity
  int arrive(int rank, int instance, int step);
  int activity_of(int meeting, int step) const {
    const int num_meetings = static_cast<int>(play_.meetings.size());
    return static_cast<int>(first_meeting_) + (step & 1) * num_meetings + meeting;
  }
  bool all_arrived(int activity) const;
  void start_meeting(int activity);
  void pause_meeting(int activity);
  const Meeting& meeting_of(int activity) const;
  void set_timer(int rank, double when);
  void note_start(int rank, int instance, int step);
  double start_in(int step, int rank, int instance) const {
    return played_[at(step & 1)].start[outcome_.offset[at(rank)] + at(instance)];
  }
  double end_in(int step, int rank, int instance) const {
    return played_[at(step & 1)].end[outcome_.offset[at(rank)] + at(instance)];
  }
  double end_of_first_step() const { return outcome_.step_ends.front(); }
  void mark_done(int rank, int instance, int step);
  /// All of a rank's instances of the step are done.
  void finish_step(int rank, int step);

  Play& play_;
  const Cluster& cluster_;
  double now_ = 0;
  bool stopped_ = false;

  struct MeetingState {
    double left = 0;
    int arrived = 0;
    int waiting = 0;  // host-driven ranks that are inside a wait
  };
  MeetingState& state_of(int activity) { return meeting_states_[at(activity) - first_meeting_]; }
  const MeetingState& state_of(int activity) const {
    return meeting_states_[at(activity) - first_meeting_];
  }

 private:
  struct Event {
    double time = 0;
    int activity = 0;  // ~rank = a timer of that rank
    std::uint32_t version = 0;
  };
  static bool later(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.activity > b.activity;
  }
  struct Working {  // what an activity of a lane works on
    int instance = 0;
    int step = 0;
  };

  void push(Event event);
  void push_changed();
  void handle(const Event& event);
  void complete_work(int activity);
  void complete_meeting(int activity);
  bool settled() const;
  bool ranks_end_alike() const;
  void look_at_second_step();
  void end_as_first_step(double later);
  [[noreturn]] void report_deadlock() const;

  const SimulationOptions& options_;
  Outcome outcome_;
  Index first_meeting_ = 0;  // activity of the first meeting; below are lanes of ranks
  std::vector<Event> heap_;
  std::vector<Working> working_;
  std::vector<MeetingState> meeting_states_;
  std::vector<LaneMask> woken_;                   // of a meeting's members
  std::vector<int> done_step_;                    // last step in which an instance was done
  std::array<PlayedStep, 2> played_;              // by parity of the step
  std::array<int, 2> ranks_finished_{};           // by parity of the step
  std::array<std::vector<double>, 2> rank_ends_;  // likewise, by rank
  int steps_finished_ = 0;
  bool gate_opened_ = false;
  // While the second step is compared with the first: how much later an instance ended that has
  // just been done, and how many of them until the next look.
  std::optional<double> later_;
  int done_of_second_ = 0;
  int next_look_ = 1;
};

/// GPUs: every lane runs its operations in issue order as soon as their waits are done and the
/// host, which runs ahead by at most a step, has issued them.
std::unique_ptr<Player> make_lane_player(Play& play, const Cluster& cluster,
                                         const SimulationOptions& options);

/// CPU processes: one thread posts communication without blocking, computes synchronously, and
/// blocks where an operation waits for one that is not done. A collective moves only while all its
/// members are blocked; a transfer is the receiver's copy, so it moves while the receiver is. A
/// blocked rank holds no core except for what it moves. With a progress thread (Plan) what all
/// members have posted moves while they compute, too, and takes its part of their cores.
std::unique_ptr<Player> make_host_player(Play& play, const Cluster& cluster,
                                         const SimulationOptions& options);

}  // namespace meshplan::sim
