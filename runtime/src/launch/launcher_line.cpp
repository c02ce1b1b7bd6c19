#include "launch/launcher_line.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include "core/error.hpp"
#include "os/local_socket.hpp"
#include "os/process_watch.hpp"
#include "runtime/launch/launch.hpp"

namespace meshplan::runtime {
namespace {

constexpr std::size_t kMostBytes = 32768;  // longer texts are cut

/// Goes before the text of a message.
struct Header {
  LauncherMessage::Kind kind;
  std::int32_t rank;
  std::int64_t said_ns;
};

/// The launcher and who talks to it share this machine's clock.
Header header_now(LauncherMessage::Kind kind, int rank) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // also in a signal handler
  return {kind, rank, std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec};
}

std::string random_name() {
  std::random_device random;
  return fmt::format("meshplan-launch-{}-{:08x}{:08x}", ::getpid(), random(), random());
}

}  // namespace

// ---------------------------------------------------------------- a rank's or guardian's end

LauncherLine::LauncherLine(const std::string& name) {
  if (name.empty()) return;
  try {
    socket_ = connect_locally(name);
  } catch (const IoError&) {
    return;  // the launcher is on another machine, or has ended
  }
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket_, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0) launcher_ = peer.pid;
}

LauncherLine::~LauncherLine() {
  hang_up();
}

void LauncherLine::hang_up() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

bool LauncherLine::say(LauncherMessage::Kind kind, int rank, const std::string& text) const {
  if (socket_ < 0) return false;
  const Header header = header_now(kind, rank);
  std::string message(sizeof header, '\0');
  std::memcpy(message.data(), &header, sizeof header);
  message += text.substr(0, kMostBytes - sizeof header);
  return ::send(socket_, message.data(), message.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(message.size());
}

bool LauncherLine::lost() {
  if (socket_ < 0) return false;
  pollfd ready{socket_, POLLIN, 0};
  return ::poll(&ready, 1, 0) > 0;
}

namespace {

std::string name_of_launcher() {
  const char* text = std::getenv(kReportSocketVariable);  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? "" : text;
}

/// The launcher and its ranks are one program on one machine, so that both see one layout.
template <class T>
std::string as_bytes(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::string text(sizeof(T), '\0');
  std::memcpy(text.data(), &value, sizeof(T));
  return text;
}

template <class T>
T from_bytes(const std::string& text) {
  T value{};
  if (text.size() == sizeof(T)) std::memcpy(&value, text.data(), sizeof(T));
  return value;
}

// A signal handler can reach nothing but statics.
std::atomic<const LauncherLine*> line_of_process{nullptr};

}  // namespace

LauncherLine& launcher_line() {
  static LauncherLine line(name_of_launcher());
  line_of_process = &line;
  return line;
}

void greet_launcher() {
  const auto outer = detect_outer_launch([](const char* name) {
    return std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  });
  if (outer && !name_of_launcher().empty())
    launcher_line().say(LauncherMessage::Kind::Rank, outer->rank, "starting");
}

void tell_launcher_of_failure() {
  if (line_of_process != nullptr) launcher_line().say(LauncherMessage::Kind::Failed, 0);
}

bool tell_launcher(const StoppedRun& run) {
  return LauncherLine(name_of_launcher()).say(LauncherMessage::Kind::Stopped, 0, as_bytes(run));
}

StepLine::StepLine() : line_(std::make_unique<LauncherLine>(name_of_launcher())) {}
StepLine::~StepLine() = default;

void StepLine::say(const StepNews& news) const {
  line_->say(LauncherMessage::Kind::Step, 0, as_bytes(news));
}

void tell_launcher_of_interrupt() noexcept {
  const LauncherLine* line = line_of_process;
  if (line == nullptr || line->socket() < 0) return;
  const Header header = header_now(LauncherMessage::Kind::Interrupted, 0);
  ::send(line->socket(), &header, sizeof header, MSG_NOSIGNAL);
}

// ---------------------------------------------------------------- the launcher's end

LauncherDesk::LauncherDesk() : name_(random_name()), listener_(listen_locally(name_)) {}

LauncherDesk::~LauncherDesk() {
  for (const Caller& caller : callers_) ::close(caller.socket);
  ::close(listener_);
}

std::vector<int> LauncherDesk::descriptors() const {
  std::vector<int> all{listener_};
  for (const Caller& caller : callers_) all.push_back(caller.socket);
  return all;
}

bool LauncherDesk::has_starting_rank() const {
  return std::ranges::any_of(callers_, &Caller::is_rank);
}

std::vector<std::string> LauncherDesk::hear() {
  Reports reports;
  read_all(reports);
  // What led to a report may have been said before it, on a line that was not taken yet.
  if (!reports.empty()) read_all(reports);
  std::vector<std::string> texts;
  for (auto& [said_ns, text] : reports) texts.push_back(std::move(text));
  return texts;
}

bool LauncherDesk::Caller::is_stopped_guardian() const {
  return guarded_machine && is_stopped(pid);
}

bool LauncherDesk::misses_guardian() const {
  return !unguarded_.empty() || std::ranges::any_of(callers_, &Caller::is_stopped_guardian);
}

void LauncherDesk::end_stopped_guardians() const {
  for (const Caller& caller : callers_)
    if (caller.is_stopped_guardian()) ::kill(caller.pid, SIGKILL);
}

void LauncherDesk::read_all(Reports& reports) {
  while (const auto peer = accept_own_user(listener_))
    callers_.push_back({.socket = peer->socket, .pid = peer->pid});
  std::erase_if(callers_, [&](Caller& caller) {
    if (read(caller, reports)) return false;
    ::close(caller.socket);
    if (caller.is_rank) lost_.push_back({caller.rank, caller.pid, caller.doing});
    if (caller.guarded_machine) unguarded_.insert(*caller.guarded_machine);
    return true;
  });
}

bool LauncherDesk::read(Caller& caller, Reports& reports) {
  std::vector<char> bytes(kMostBytes);
  while (true) {
    const ssize_t length = ::recv(caller.socket, bytes.data(), bytes.size(), 0);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0 && errno == EAGAIN) return true;
    if (length <= 0) return false;
    Header header{};
    if (length < static_cast<ssize_t>(sizeof header)) continue;
    std::memcpy(&header, bytes.data(), sizeof header);
    take(caller,
         {.kind = header.kind,
          .rank = header.rank,
          .said_ns = header.said_ns,
          .text = {bytes.begin() + sizeof header, bytes.begin() + length}},
         reports);
  }
}

void LauncherDesk::take(Caller& caller, const LauncherMessage& message, Reports& reports) {
  using Kind = LauncherMessage::Kind;
  switch (message.kind) {
    case Kind::Rank:
      heard_.insert(message.rank);
      caller.is_rank = true;
      caller.rank = message.rank;
      caller.doing = message.text;
      break;
    case Kind::Failed:
      rank_failed_ = true;
      caller.is_rank = false;
      break;
    case Kind::Watched:
      caller.is_rank = false;
      break;
    case Kind::Guardian:  // its line says that its ranks are not all gone
      caller.guarded_machine = message.rank;
      unguarded_.erase(message.rank);
      break;
    case Kind::Leaves:
      caller.guarded_machine.reset();
      break;
    case Kind::Interrupted:
      interrupted_ = true;
      caller.is_rank = false;
      break;
    case Kind::Stopped:
      stopped_run_ = from_bytes<StoppedRun>(message.text);
      break;
    case Kind::Lost:
      named_.push_back(message.rank);
      break;
    case Kind::Step:
      steps_.push_back(from_bytes<StepNews>(message.text));
      break;
    case Kind::Report:
      reports.emplace(message.said_ns, message.text);
      break;
  }
}

}  // namespace meshplan::runtime
