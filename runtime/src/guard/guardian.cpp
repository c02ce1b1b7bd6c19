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
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/printable.hpp"
#include "core/units.hpp"
#include "guard/become_guardian.hpp"
#include "guard/peer_link.hpp"
#include "guard/watchdog.hpp"
#include "launch/launcher_watch.hpp"
#include "meet/handshake.hpp"
#include "os/local_socket.hpp"
#include "os/out_of_memory.hpp"
#include "os/process_watch.hpp"

namespace meshplan::runtime {
namespace {

constexpr int kTickMs = 200;
constexpr double kNanosecond = 1e-9;
constexpr Seconds kGraceAfterError{2.0};  // for a rank to report its own error
constexpr Seconds kGraceAfterKill{1.0};
constexpr Seconds kSilenceOfMachine{8.0};  // TCP may need a second or two on a busy machine
constexpr Seconds kAnswerOfRoot{1.0};

double now_s() {
  return static_cast<double>(monotonic_ns()) * kNanosecond;
}

/// A rank's process. Its lifeline closes before the launcher can notice that it died and kill the
/// others; the watch tells when it is really gone.
struct LocalRank {
  StatusSlot* slot = nullptr;
  ProcessWatch process;
  int lifeline = -1;
  bool alive = true;
  bool death_noted = false;
  double stopped_since_s = -1;
  char state = 'R';
  double resident_bytes = 0;  // at the last look

  bool is(RankState wanted) const { return slot->state.load() == wanted; }
};

/// Writes all of it, whatever the pipe does.
void write_to_stderr(const std::string& text) {
  std::size_t written = 0;
  while (written < text.size()) {
    const auto count = ::write(STDERR_FILENO, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) return;
    if (count > 0) written += static_cast<std::size_t>(count);
  }
}

class Guardian {
 public:
  explicit Guardian(GuardianConfig config)
      : config_(std::move(config)), launcher_(config_.report_socket, started(config_)) {
    for (int i = 0; i < config_.num_slots; ++i) {
      StatusSlot& slot = config_.slots[i];
      ranks_.push_back({.slot = &slot, .process = ProcessWatch(slot.pid.load())});
      ranks_.back().alive = !ranks_.back().process.ended();
    }
    accept_lifelines();
    if (network().num_machines > 1 && is_root())
      door_.emplace(Socket(network().listener), secret(), Purpose::Guardians, network().machine);
    launcher_.line().say(LauncherMessage::Kind::Guardian, network().machine);
    if (network().num_machines > 1 && !is_root()) join();
    for (LocalRank& rank : ranks_)
      if (!rank.alive) note_death(rank);  // gone before anybody watched
  }

  void run() {
    while (!ended_) {
      sleep_until_something_happens();
      talk();
      if (!ended_) judge();
      if (!ended_ && is_over()) ended_ = true;
    }
  }

 private:
  const GuardianNetwork& network() const { return config_.network; }
  bool is_root() const { return network().machine == 0; }
  Secret secret() const { return Secret::from_bytes(network().key); }

  // ------------------------------------------------------------ local ranks

  static std::vector<LauncherWatch::Started> started(const GuardianConfig& config) {
    std::vector<LauncherWatch::Started> ranks;
    for (int i = 0; i < config.num_slots; ++i)
      ranks.push_back({config.slots[i].pid.load(), config.slots[i].starter.load()});
    return ranks;
  }

  /// All ranks have connected before the guardian started; what else has is none of them.
  void accept_lifelines() {
    while (const auto peer = accept_own_user(config_.lifeline_listener)) {
      const auto owner = std::ranges::find_if(
          ranks_, [&](const LocalRank& rank) { return rank.process.pid() == peer->pid; });
      if (owner != ranks_.end() && owner->lifeline < 0)
        owner->lifeline = peer->socket;
      else
        ::close(peer->socket);
    }
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
    for (const auto& link : links_) fds.push_back({link.is_open() ? link.socket() : -1, POLLIN, 0});
    if (door_) door_->add_to(fds);
    if (!judged_) launcher_.add_to(fds);
    ::poll(fds.data(), fds.size(), kTickMs);
    const double now = now_s();
    const bool due = now - last_look_s_ >= kTickMs / 1e3;
    if (due) last_look_s_ = now;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (fds[i].revents != 0) {  // nothing is ever written to a lifeline: it was closed
        ::close(std::exchange(ranks_[i].lifeline, -1));
        note_death(ranks_[i]);
      }
      look_at(ranks_[i], due);
    }
  }

  void look_at(LocalRank& rank, bool due) {
    if (!rank.alive) return;
    if (due) rank.state = process_state(rank.process.pid());
    if (due && !rank.death_noted) rank.resident_bytes = resident_bytes_of(rank.process.pid());
    if (rank.process.ended()) {
      rank.alive = false;
      note_death(rank);
    }
    if (rank.state != 'T')
      rank.stopped_since_s = -1;
    else if (rank.stopped_since_s < 0)
      rank.stopped_since_s = now_s();
  }

  RankView view_of(const LocalRank& rank) const {
    const StatusSlot& slot = *rank.slot;
    RankView view;
    view.rank = slot.rank.load();
    view.host = config_.host_of_rank[at(view.rank)];
    view.pid = rank.process.pid();
    view.state = slot.state.load();
    view.awaited_rank = slot.awaited_rank.load();
    view.since_progress = {now_s() - static_cast<double>(slot.progress_ns.load()) * kNanosecond};
    if (rank.stopped_since_s >= 0) view.stopped = Seconds{now_s() - rank.stopped_since_s};
    view.traced = rank.state == 't';
    view.status = read_text(slot);
    return view;
  }

  std::vector<RankView> all_views() const {
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
    if (!is_root()) {
      if (!links_.empty()) links_[0].send(frame(Frame::Kind::Bye));
      return true;
    }
    const double now = now_s();
    if (finished_s_ < 0) finished_s_ = now;
    const bool alone = static_cast<int>(departed_.size()) == network().num_machines - 1;
    if (!alone && now - finished_s_ < kSilenceOfMachine.value) return false;
    for (PeerLink& link : links_) link.send(frame(Frame::Kind::Bye));
    drain_links();
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
    if (!loss.empty()) return end_job(loss, views);
    if (!deaths_.empty()) return end_job(death_text(views), views);
    const bool decides = is_root() || links_.empty() || !links_[0].is_open();
    const bool sees_all = views.size() == config_.host_of_rank.size() || !is_root();
    if (!decides || !sees_all) return;
    const auto hang = find_hang(views, config_.hang_timeout);
    if (!hang) return;
    const auto found = std::ranges::find(views, hang->rank, &RankView::rank);
    switch (hang->kind) {
      case Hang::Kind::Stopped:
      case Hang::Kind::Stuck:
        return end_job("hangs: " + describe(*found), views);
      case Hang::Kind::Deadlock:
        return end_job("deadlock, every rank waits; the longest: " + describe(*found), views);
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
  void end_job(const std::string& cause, const std::vector<RankView>& views) {
    if (!is_root() && !links_.empty() && links_[0].is_open()) {
      send_cause(cause);
      const double asked = now_s();
      while (now_s() - asked < kAnswerOfRoot.value && links_[0].is_open()) {
        for (const Frame& answer : links_[0].receive())
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
    send_cause("");
    await_launcher();
    end_local_ranks();
  }

  /// The launcher normally ends all ranks after an abort.
  void await_launcher() {
    const double start = now_s();
    while (any_alive() && now_s() - start < kGraceAfterError.value) sleep_until_something_happens();
  }

  void announce(const std::string& cause, const std::vector<RankView>& views) {
    if (cause.empty()) return;
    constexpr int kMaxOthers = 8;
    std::string text = fmt::format("meshplan: the job ends: {}\n", cause);
    int shown = 0;
    for (const RankView& view : views) {
      const std::string line = describe(view);
      if (cause.find(fmt::format("rank {} on ", view.rank)) != std::string::npos) continue;
      if (++shown > kMaxOthers) break;
      text += fmt::format("meshplan:   meanwhile {}\n", line);
    }
    if (!launcher_.line().say(LauncherMessage::Kind::Report, network().machine, text))
      write_to_stderr(printable(text));
  }

  bool any_alive() const {
    return std::ranges::any_of(ranks_, [](const LocalRank& rank) { return rank.alive; });
  }

  void end_local_ranks() {
    judged_ = ended_ = true;
    for (const LocalRank& rank : ranks_) rank.process.signal(SIGKILL);
    const double start = now_s();
    while (any_alive() && now_s() - start < kGraceAfterKill.value) sleep_until_something_happens();
    if (is_root()) drain_links();
  }

  // ------------------------------------------------------------ other machines

  /// Reads on until the others have left: closing a socket with unread data discards what was sent.
  void drain_links() {
    const double start = now_s();
    const auto is_open = [](const PeerLink& link) { return link.is_open(); };
    while (std::ranges::any_of(links_, is_open) && now_s() - start < kAnswerOfRoot.value) {
      for (PeerLink& link : links_) link.receive();
      ::poll(nullptr, 0, 5);
    }
  }

  Frame frame(Frame::Kind kind) const {
    Frame made;
    made.kind = kind;
    made.machine = network().machine;
    return made;
  }

  void join() {
    constexpr Seconds kToJoin{10.0};
    const Identity identity{.from = network().machine,
                            .to = 0,
                            .size = network().num_machines,
                            .purpose = Purpose::Guardians};
    const Deadline deadline(kToJoin);
    do {
      Socket socket = connect_to_any(network().addresses, network().port, deadline);
      const bool met =
          socket.is_open() && introduce(
                                  socket, [this] { return secret(); }, identity, deadline)
                                      .result == Call::Result::Met;
      if (met) return add_link(std::move(socket), 0);
    } while (!deadline.passed() && ::poll(nullptr, 0, 50) == 0);
    write_to_stderr(fmt::format(
        "meshplan: warning: machine {} cannot reach the machine of rank 0 on port {}: a death or "
        "hang is reported by each machine on its own\n",
        network().machine, network().port));
  }

  void add_link(Socket socket, int machine) {
    links_.emplace_back(std::move(socket));
    machine_of_link_.push_back(machine);
    heard_s_.push_back(now_s());
  }

  void send_cause(const std::string& cause) {
    Frame message = frame(Frame::Kind::Cause);
    std::strncpy(message.text, cause.c_str(), sizeof(message.text) - 1);
    for (PeerLink& link : links_)
      if (link.is_open()) link.send(message);
  }

  void talk() {
    if (network().num_machines == 1) return;
    if (is_root()) welcome();
    const double now = now_s();
    if (now - last_talk_s_ >= kTickMs / 1e3) {
      last_talk_s_ = now;
      for (PeerLink& link : links_) {
        if (!link.is_open()) continue;
        link.send(frame(Frame::Kind::Alive));
        if (!is_root())
          for (const LocalRank& rank : ranks_) link.send(status_frame(view_of(rank)));
      }
    }
    for (std::size_t i = 0; i < links_.size() && !ended_; ++i) listen_to(i);
  }

  void welcome() {
    for (Guest& guest : door_->guests()) {
      const int machine = guest.identity.from;
      if (machine > 0 && machine < network().num_machines)
        add_link(std::move(guest.socket), machine);
    }
  }

  void listen_to(std::size_t i) {
    for (const Frame& message : links_[i].receive()) {
      heard_s_[i] = now_s();
      if (message.kind == Frame::Kind::Status) remember(message);
      if (message.kind == Frame::Kind::Bye) departed_[machine_of_link_[i]] = true;
      if (message.kind == Frame::Kind::Cause) {
        announce(is_root() ? message.text : "", all_views());
        send_cause(message.text);
        judged_ = true;
        if (message.text[0] == '\0') await_launcher();
        return end_local_ranks();
      }
    }
    const int machine = machine_of_link_[i];
    const bool silent = !links_[i].is_open() || now_s() - heard_s_[i] > kSilenceOfMachine.value;
    if (departed_.contains(machine) || !silent) return;
    departed_[machine] = true;
    end_job(lost_text(machine), all_views());
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
    view.status = message.text;
    remote_[message.rank] = std::move(view);
  }

  GuardianConfig config_;
  LauncherWatch launcher_;
  OutOfMemoryKills memory_kills_;
  std::vector<LocalRank> ranks_;
  std::vector<int> deaths_;      // ranks, in the order noticed
  std::optional<Door> door_;     // root: for the other machines
  std::vector<PeerLink> links_;  // root: one a machine; else one to the root, or none
  std::vector<int> machine_of_link_;
  std::vector<double> heard_s_;
  std::map<int, bool> departed_;  // machines that have left, in peace or lost
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
  become_guardian(config);
  try {
    Guardian(config).run();
  } catch (const std::exception& error) {
    write_to_stderr(
        fmt::format("meshplan: the guardian failed: {}\n", printable_line(error.what())));
  }
  ::_exit(0);
}

}  // namespace meshplan::runtime
