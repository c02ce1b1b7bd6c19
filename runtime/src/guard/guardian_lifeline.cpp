#include "guard/guardian_lifeline.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "launch/launcher_line.hpp"
#include "os/process_watch.hpp"
#include "os/quiet_thread.hpp"
#include "os/running_clock.hpp"
#include "os/whole_write.hpp"

namespace meshplan::runtime {
namespace {

constexpr int kBetweenLooksMs = 1000;
constexpr double kPatienceWithBoth =
    2 * kPatienceWithGuardian;  // one of the two may be about to act
constexpr int kWordsOfAnotherMs = 1000;

/// One of the two places at a machine's post, whoever has it.
class Place {
 public:
  explicit Place(const std::atomic<int>& holder) : holder_(holder) {}

  /// Nobody does its work, for long. A place that nobody has taken yet is not lost.
  bool is_lost(double now_s) {
    const int pid = holder_.load();
    if (pid == 0) return false;
    if (!watch_ || watch_->pid() != pid) watch_.emplace(pid, kPatienceWithBoth);
    return !watch_->loss(now_s).empty();
  }

 private:
  const std::atomic<int>& holder_;
  std::optional<GuardianWatch> watch_;
};

/// Stopped, or gone.
bool is_idle(int pid) {
  return is_stopped(pid) || ProcessWatch(pid).ended();
}

}  // namespace

GuardianLifeline::GuardianLifeline(int socket, GuardPost& post, std::span<StatusSlot> slots,
                                   std::string name, std::string report_socket)
    : socket_(socket),
      wake_(::eventfd(0, EFD_CLOEXEC)),
      post_(post),
      slots_(slots),
      name_(std::move(name)),
      report_socket_(std::move(report_socket)) {
  if (wake_ < 0)
    throw IoError(fmt::format("cannot watch the guardian process: {}", std::strerror(errno)));
  for (const StatusSlot& slot : slots_)
    if (slot.pid.load() != ::getpid()) other_ranks_.emplace_back(slot.pid.load());
  thread_ = start_without_signals([this] { watch(); });
}

GuardianLifeline::~GuardianLifeline() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
  thread_.join();
  end_idle_guardians();
  ::close(wake_);
  ::close(socket_);
}

void GuardianLifeline::watch() {
  RunningClock clock;
  Place guardian(post_.guardian);
  Place spare(post_.spare);
  while (true) {
    pollfd fds[] = {{wake_, POLLIN, 0}, {socket_, POLLIN, 0}};
    ::poll(fds, 2, kBetweenLooksMs);
    if (fds[0].revents != 0) return;
    if (fds[1].revents != 0) end_job("have ended");  // nothing is ever written to a lifeline
    const double now = clock.now_s();
    const bool lost[] = {guardian.is_lost(now), spare.is_lost(now)};
    if (lost[0] && lost[1]) end_job("do not answer: stopped by a signal");
  }
}

void GuardianLifeline::end_job(const std::string& how) {
  // The others are ended by the rank that speaks, once it has spoken.
  if (post_.loss_said.exchange(true)) {
    ::poll(nullptr, 0, kWordsOfAnotherMs);
    ::_exit(1);
  }
  const std::string text = fmt::format(
      "meshplan: the job ends: the guardians of the ranks on {} (pid {} and {}) {}; without them "
      "nobody would see a rank die or hang\n",
      name_, post_.guardian.load(), post_.spare.load(), how);
  LauncherLine line(report_socket_);
  if (!line.say(LauncherMessage::Kind::Report, 0, text))
    write_whole(STDERR_FILENO, printable(text));
  end_stopped_guardians();
  for (const ProcessWatch& rank : other_ranks_) rank.signal(SIGKILL);
  ::_exit(1);
}

std::array<int, 2> GuardianLifeline::guardians() const {
  return {post_.guardian.load(), post_.spare.load()};
}

void GuardianLifeline::end_stopped_guardians() const {
  for (const int guardian : guardians())
    if (is_stopped(guardian)) ::kill(guardian, SIGKILL);
}

/// Who is the last to finish leaves none behind that is stopped: the launcher would wait for it,
/// for it holds the launcher's pipes.
void GuardianLifeline::end_idle_guardians() const {
  const auto works = [](const StatusSlot& slot) {
    return slot.state.load() != RankState::Finished && slot.state.load() != RankState::Failed;
  };
  if (std::ranges::any_of(slots_, works) || !std::ranges::all_of(guardians(), is_idle)) return;
  end_stopped_guardians();
}

}  // namespace meshplan::runtime
