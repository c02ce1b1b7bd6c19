// Runs in a process forked from a rank: no MPI in here, and nothing that the rank's threads could
// hold.
#include "guard/guardian.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/printable.hpp"
#include "core/units.hpp"
#include "guard/become_guardian.hpp"
#include "guard/machine_links.hpp"
#include "guard/spare.hpp"
#include "guard/watchdog.hpp"
#include "launch/launcher_watch.hpp"
#include "os/local_socket.hpp"
#include "os/out_of_memory.hpp"
#include "os/process_watch.hpp"
#include "os/running_clock.hpp"
#include "os/whole_write.hpp"

namespace meshplan::runtime {
namespace {

constexpr Seconds kGraceAfterError{2.0};  // for a rank to report its own error
constexpr Seconds kGraceAfterKill{1.0};
constexpr Seconds kAnswerOfRoot{1.0};
constexpr Seconds kBetweenSpares{5.0};  // where none can be had

/// A rank's process. Its lifeline closes before the launcher can notice that it died and kill the
/// others; the watch tells when it is really gone.
struct LocalRank {
  StatusSlot* slot = nullptr;
  ProcessWatch process;
  int lifeline = -1;
  bool alive = true;
  bool death_noted = false;
  bool finished = false;          // at the last look
  std::int64_t progress_ns = -1;  // at the last look, in which the rank had made it
  double progress_s = 0;          // when it was first seen
  double stopped_since_s = -1;
  char state = 'R';
  double resident_bytes = 0;  // at the last look

  bool is(RankState wanted) const { return slot->state.load() == wanted; }
};

/// Why the job ends, and for which ranks: -1 = none.
struct Cause {
  std::string text;  // empty: a rank says it itself
  int lost_rank = -1;
  int lost_machine = -1;  // with all of its ranks
};

class Guardian {
 public:
  explicit Guardian(GuardianConfig config)
      : config_(std::move(config)),
        launcher_(config_.report_socket, started(config_)),
        links_(config_.network) {
    config_.post->guardian.store(::getpid());
    for (int i = 0; i < config_.num_slots; ++i) {
      StatusSlot& slot = config_.slots[i];
      ranks_.push_back({.slot = &slot, .process = ProcessWatch(slot.pid.load())});
      ranks_.back().alive = !ranks_.back().process.ended();
    }
    hold_lifelines();
    keep_spare();
    launcher_.line().say(LauncherMessage::Kind::Guardian, network().machine);
    if (!links_.is_root()) join();
    for (LocalRank& rank : ranks_)
      if (!rank.alive) note_death(rank);  // gone before anybody watched
  }
  /// The spare has nothing to do without a guardian that was lost, and holds the launcher's pipes.
  ~Guardian() {
    launcher_.line().say(LauncherMessage::Kind::Leaves, network().machine);
    if (spare_) spare_->end();
  }
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  void run() {
    while (!ended_) {
      sleep_until_something_happens();
      if (!judged_) keep_spare();
      talk();
      if (!ended_) judge();
      if (!ended_ && is_over()) ended_ = true;
    }
  }

 private:
  const GuardianNetwork& network() const { return config_.network; }

  // ------------------------------------------------------------ local ranks

  static std::vector<LauncherWatch::Started> started(const GuardianConfig& config) {
    std::vector<LauncherWatch::Started> ranks;
    for (int i = 0; i < config.num_slots; ++i)
      ranks.push_back({config.slots[i].pid.load(), config.slots[i].starter.load()});
    return ranks;
  }

  /// What has connected beside the ranks is none of them.
  void hold_lifelines() {
    for (const Lifeline& lifeline : config_.lifelines) {
      const auto owner = std::ranges::find_if(
          ranks_, [&](const LocalRank& rank) { return rank.process.pid() == lifeline.pid; });
      if (owner != ranks_.end()) owner->lifeline = lifeline.socket;
    }
  }

  void drop_lifeline(LocalRank& rank) {
    std::erase_if(config_.lifelines,
                  [&](const Lifeline& one) { return one.socket == rank.lifeline; });
    ::close(std::exchange(rank.lifeline, -1));
  }

  // ------------------------------------------------------------ the spare

  void keep_spare() {
    const double now = clock_.now_s();
    if (spare_) {
      const std::string loss = spare_->loss(now);
      if (loss.empty()) return;
      spare_->end();
      say_beside_job(config_, fmt::format("the second guardian of its ranks (pid {}) {}: another "
                                          "one is started, the job goes on",
                                          spare_->pid(), loss));
      spare_.reset();
    } else if (spare_tried_s_ >= 0 && now - spare_tried_s_ < kBetweenSpares.value) {
      return;
    }
    const int pid = start_spare(config_);
    config_.post->spare.store(pid);
    if (pid > 0)
      spare_.emplace(pid, kPatienceWithGuardian);
    else if (spare_tried_s_ < 0)
      say_beside_job(config_, fmt::format("no second guardian for its ranks: {}; the loss of the "
                                          "first one would end the job",
                                          std::strerror(errno)));
    spare_tried_s_ = now;
  }

  void note_death(LocalRank& rank) {
    if (rank.death_noted || rank.is(RankState::Finished)) return;
    rank.death_noted = true;
    deaths_.push_back(rank.slot->rank.load());
  }

  void sleep_until_something_happens() {
    std::vector<pollfd> fds;
    for (const LocalRank& rank : ranks_) fds.push_back({rank.lifeline, POLLIN, 0});
    for (const LocalRank& rank : ranks_) fds.push_back({rank.process.descriptor(), POLLIN, 0});
    links_.add_to(fds);
    fds.push_back({spare_ ? spare_->descriptor() : -1, POLLIN, 0});
    if (!judged_) launcher_.add_to(fds);
    ::poll(fds.data(), fds.size(), kGuardianTickMs);
    const double now = clock_.now_s();
    const bool due = now - last_look_s_ >= kGuardianTickMs / 1e3;
    if (due) last_look_s_ = now;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (fds[i].revents != 0) {  // nothing is ever written to a lifeline: it was closed
        drop_lifeline(ranks_[i]);
        note_death(ranks_[i]);
      }
      look_at(ranks_[i], now, due);
    }
  }

  void look_at(LocalRank& rank, double now, bool due) {
    if (!rank.alive) return;
    if (const std::int64_t progress = rank.slot->progress_ns.load();
        progress != std::exchange(rank.progress_ns, progress))
      rank.progress_s = now;
    if (rank.is(RankState::Finished) && !std::exchange(rank.finished, true)) rank.progress_s = now;
    if (due) rank.state = process_state(rank.process.pid());
    if (due && !rank.death_noted) rank.resident_bytes = resident_bytes_of(rank.process.pid());
    if (rank.process.ended()) {
      rank.alive = false;
      note_death(rank);
    }
    if (rank.state != 'T')
      rank.stopped_since_s = -1;
    else if (rank.stopped_since_s < 0)
      rank.stopped_since_s = now;
  }

  RankView view_of(const LocalRank& rank) {
    const StatusSlot& slot = *rank.slot;
    const double now = clock_.now_s();
    RankView view;
    view.rank = slot.rank.load();
    view.host = config_.host_of_rank[at(view.rank)];
    view.pid = rank.process.pid();
    view.state = slot.state.load();
    view.awaited_rank = slot.awaited_rank.load();
    view.since_progress = {now - rank.progress_s};
    if (rank.stopped_since_s >= 0) view.stopped = Seconds{now - rank.stopped_since_s};
    view.traced = rank.alive && rank.state == 't';
    view.gone = !rank.alive;
    view.status = read_text(slot);
    return view;
  }

  std::vector<RankView> all_views() {
    std::vector<RankView> views;
    for (const LocalRank& rank : ranks_) views.push_back(view_of(rank));
    for (const auto& [rank, view] : remote_) views.push_back(view);
    std::ranges::sort(views, {}, &RankView::rank);
    return views;
  }

  bool any_is(RankState state) const {
    return std::ranges::any_of(ranks_, [state](const LocalRank& rank) { return rank.is(state); });
  }

  bool all_finished() const {
    return std::ranges::all_of(ranks_,
                               [](const LocalRank& rank) { return rank.is(RankState::Finished); });
  }

  /// Everybody here is gone; the root also stays for the other machines.
  bool is_over() {
    if (std::ranges::any_of(ranks_, [](const LocalRank& rank) { return rank.alive; })) return false;
    if (!links_.is_root()) {
      links_.send(frame(Frame::Kind::Bye));
      return true;
    }
    const double now = clock_.now_s();
    if (finished_s_ < 0) finished_s_ = now;
    if (!links_.all_departed() && now - finished_s_ < MachineLinks::kSilenceOfMachine.value)
      return false;
    links_.send(frame(Frame::Kind::Bye));
    links_.drain();
    return true;
  }

  // ------------------------------------------------------------ causes

  void judge() {
    if (all_finished()) judged_ = true;
    if (any_is(RankState::Failed)) return end_quietly();
    if (any_is(RankState::Interrupted)) {
      launcher_.line().say(LauncherMessage::Kind::Interrupted, network().machine);
      return end_quietly();
    }
    // Whoever started the ranks may have taken them along: first causes first.
    const std::string loss = all_finished() ? std::string() : launcher_.loss();
    const auto views = all_views();
    if (!loss.empty()) return end_job({.text = loss}, views);
    // Of several that died at once MPI has ended all but the first.
    if (!deaths_.empty())
      return end_job({.text = death_text(views), .lost_rank = deaths_.front()}, views);
    const bool decides = links_.is_root() || !links_.expects_root();
    const bool sees_all = views.size() == config_.host_of_rank.size() || !links_.is_root();
    if (!decides || !sees_all) return;
    const auto hang = find_hang(views, config_.hang_timeout);
    if (!hang) return;
    const auto found = std::ranges::find(views, hang->rank, &RankView::rank);
    switch (hang->kind) {
      case Hang::Kind::Stopped:
      case Hang::Kind::Stuck:
        return end_job({.text = "hangs: " + describe(*found), .lost_rank = hang->rank}, views);
      case Hang::Kind::Deadlock:
        return end_job({.text = "deadlock, every rank waits; the longest: " + describe(*found)},
                       views);
    }
  }

  std::string death_text(const std::vector<RankView>& views) const {
    std::string text = deaths_.size() == 1 ? "died: " : "died at once (one of them first): ";
    for (std::size_t i = 0; i < deaths_.size() && i < 4; ++i) {
      const auto found = std::ranges::find(views, deaths_[i], &RankView::rank);
      text += (i == 0 ? "" : " | ") + describe(*found);
    }
    return text + memory_text();
  }

  /// Who dies for want of memory gets no word in.
  std::string memory_text() const {
    const std::string kills = memory_kills_.since_start();
    if (kills.empty()) return {};
    const auto victim = std::ranges::find_if(ranks_, &LocalRank::death_noted);
    return fmt::format("; {} since the start: its memory was refused, and it held {:.2f} GiB",
                       kills, victim == ranks_.end() ? 0.0 : victim->resident_bytes / kGib);
  }

  /// The root speaks for the job; a machine that cannot reach it speaks for itself.
  void end_job(const Cause& cause, const std::vector<RankView>& views) {
    if (links_.expects_root() && links_.reach_root(kAnswerOfRoot, clock_.now_s())) {
      send_cause(cause);
      const Deadline deadline(kAnswerOfRoot);
      while (links_.has_root() && !deadline.passed()) {
        for (const Frame& answer : links_.receive(clock_.now_s()))
          if (answer.kind == Frame::Kind::Cause) return end_local_ranks();
        ::poll(nullptr, 0, 10);
      }
    }
    announce(cause, views);
    send_cause(cause);
    end_local_ranks();
  }

  /// A rank reports its error itself: its message and its exit code come first.
  void end_quietly() {
    judged_ = true;
    send_cause({});
    await_launcher();
    end_local_ranks();
  }

  /// The launcher normally ends all ranks after an abort.
  void await_launcher() {
    const Deadline deadline(kGraceAfterError);
    while (any_alive() && !deadline.passed()) sleep_until_something_happens();
  }

  void announce(const Cause& cause, const std::vector<RankView>& views) {
    if (cause.text.empty()) return;
    name_lost(cause);
    constexpr int kMaxOthers = 8;
    std::string text = fmt::format("meshplan: the job ends: {}\n", cause.text);
    int shown = 0;
    for (const RankView& view : views) {
      const std::string line = describe(view);
      if (cause.text.find(fmt::format("rank {} on ", view.rank)) != std::string::npos) continue;
      if (++shown > kMaxOthers) break;
      text += fmt::format("meshplan:   meanwhile {}\n", line);
    }
    if (!launcher_.line().say(LauncherMessage::Kind::Report, network().machine, text))
      write_whole(STDERR_FILENO, printable(text));
  }

  /// A supervisor goes on without the ranks that are named.
  void name_lost(const Cause& cause) {
    for (int rank = 0; rank < static_cast<int>(config_.machine_of_rank.size()); ++rank)
      if (rank == cause.lost_rank || config_.machine_of_rank[at(rank)] == cause.lost_machine)
        launcher_.line().say(LauncherMessage::Kind::Lost, rank);
  }

  bool any_alive() const {
    return std::ranges::any_of(ranks_, [](const LocalRank& rank) { return rank.alive; });
  }

  void end_local_ranks() {
    judged_ = ended_ = true;
    for (const LocalRank& rank : ranks_) rank.process.signal(SIGKILL);
    const Deadline deadline(kGraceAfterKill);
    while (any_alive() && !deadline.passed()) sleep_until_something_happens();
    if (links_.is_root()) links_.drain();
  }

  // ------------------------------------------------------------ other machines

  Frame frame(Frame::Kind kind) const {
    Frame made;
    made.kind = kind;
    made.machine = network().machine;
    return made;
  }

  void join() {
    constexpr Seconds kToJoin{10.0};
    if (links_.reach_root(kToJoin, clock_.now_s())) return;
    write_whole(STDERR_FILENO,
                fmt::format("meshplan: warning: machine {} cannot reach the machine of rank 0 on "
                            "port {}: a death or hang is reported by each machine on its own\n",
                            network().machine, network().port));
  }

  void send_cause(const Cause& cause) {
    Frame message = frame(Frame::Kind::Cause);
    message.lost_rank = cause.lost_rank;
    message.lost_machine = cause.lost_machine;
    std::strncpy(message.text, cause.text.c_str(), sizeof(message.text) - 1);
    links_.send(message);
  }

  void talk() {
    if (network().num_machines == 1) return;
    const double now = clock_.now_s();
    if (now - last_talk_s_ >= kGuardianTickMs / 1e3) {
      last_talk_s_ = now;
      links_.send(frame(Frame::Kind::Alive));
      if (!links_.is_root())
        for (const LocalRank& rank : ranks_) links_.send(status_frame(view_of(rank)));
    }
    for (const Frame& message : links_.receive(now)) {
      if (message.kind == Frame::Kind::Status) remember(message);
      if (message.kind == Frame::Kind::Cause)
        return follow({.text = message.text,
                       .lost_rank = message.lost_rank,
                       .lost_machine = message.lost_machine});
    }
    if (const auto machine = links_.lost_machine(now))
      end_job({.text = lost_text(*machine), .lost_machine = *machine}, all_views());
  }

  /// Ends the job as another machine's guardian has asked; empty: a rank says why itself.
  void follow(const Cause& cause) {
    announce(links_.is_root() ? cause : Cause{}, all_views());
    send_cause(cause);
    judged_ = true;
    if (cause.text.empty()) await_launcher();
    end_local_ranks();
  }

  std::string lost_text(int machine) const {
    std::string ranks;
    std::string host;
    for (std::size_t rank = 0; rank < config_.machine_of_rank.size(); ++rank)
      if (config_.machine_of_rank[rank] == machine) {
        ranks += fmt::format(" {}", rank);
        host = config_.host_of_rank[rank];
      }
    return fmt::format("lost the machine {} with ranks{}: no sign of life", host, ranks);
  }

  Frame status_frame(const RankView& view) const {
    Frame made = frame(Frame::Kind::Status);
    made.rank = view.rank;
    made.pid = view.pid;
    made.state = view.state;
    made.awaited_rank = view.awaited_rank;
    made.since_progress_s = view.since_progress.value;
    made.stopped_s = view.stopped ? view.stopped->value : -1;
    made.traced = view.traced ? 1 : 0;
    made.gone = view.gone ? 1 : 0;
    std::strncpy(made.text, view.status.c_str(), sizeof(made.text) - 1);
    return made;
  }

  void remember(const Frame& message) {
    if (message.rank < 0 || message.rank >= static_cast<int>(config_.host_of_rank.size())) return;
    RankView view;
    view.rank = message.rank;
    view.host = config_.host_of_rank[at(message.rank)];
    view.pid = message.pid;
    view.state = message.state;
    view.awaited_rank = message.awaited_rank;
    view.since_progress = {message.since_progress_s};
    if (message.stopped_s >= 0) view.stopped = Seconds{message.stopped_s};
    view.traced = message.traced != 0;
    view.gone = message.gone != 0;
    view.status = message.text;
    remote_[message.rank] = std::move(view);
  }

  GuardianConfig config_;
  RunningClock clock_;
  LauncherWatch launcher_;
  MachineLinks links_;
  std::optional<GuardianWatch> spare_;
  double spare_tried_s_ = -1;
  OutOfMemoryKills memory_kills_;
  std::vector<LocalRank> ranks_;
  std::vector<int> deaths_;  // ranks, in the order noticed
  std::map<int, RankView> remote_;
  double finished_s_ = -1;  // when all local ranks were gone
  double last_look_s_ = 0;
  double last_talk_s_ = 0;
  bool judged_ = false;  // the launcher is of no interest any more
  bool ended_ = false;
};

}  // namespace

void start_guardian(const GuardianConfig& config) {
  const pid_t child = ::fork();
  if (child < 0)
    throw IoError(fmt::format("cannot fork the guardian process: {}", std::strerror(errno)));
  if (child > 0) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return;
  }
  // A grandchild, so that the rank never has a child to wait for.
  if (::fork() != 0) ::_exit(0);
  become_guardian(config, kNameOfGuardian);
  GuardianConfig own = config;
  // All ranks have connected before.
  while (const auto peer = accept_own_user(own.lifeline_listener))
    own.lifelines.push_back({peer->pid, peer->socket});
  ::close(std::exchange(own.lifeline_listener, -1));
  serve_as_guardian(std::move(own));
}

void serve_as_guardian(GuardianConfig config) {
  prctl(PR_SET_NAME, kNameOfGuardian);
  try {
    Guardian(std::move(config)).run();
  } catch (const std::exception& error) {
    write_whole(STDERR_FILENO,
                fmt::format("meshplan: the guardian failed: {}\n", printable_line(error.what())));
  }
  ::_exit(0);
}

}  // namespace meshplan::runtime
