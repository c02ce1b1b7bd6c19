#include "guard/spare.hpp"

#include <csignal>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "core/index.hpp"
#include "core/printable.hpp"
#include "guard/become_guardian.hpp"
#include "os/running_clock.hpp"
#include "os/whole_write.hpp"

namespace meshplan::runtime {
namespace {

/// Until the guardian is lost. @returns how
std::string stand_by(int guardian) {
  GuardianWatch watch(guardian, kPatienceWithGuardian);
  if (::getppid() != guardian) return "has ended";  // before it was watched
  RunningClock clock;
  while (true) {
    pollfd ended{watch.descriptor(), POLLIN, 0};
    ::poll(&ended, 1, kGuardianTickMs);
    std::string loss = watch.loss(clock.now_s());
    if (loss.empty()) continue;
    watch.end();
    return loss;
  }
}

}  // namespace

std::string GuardianWatch::loss(double now_s) {
  if (process_.ended()) return "has ended";
  if (!is_stopped(pid()))
    stopped_since_s_ = -1;
  else if (stopped_since_s_ < 0)
    stopped_since_s_ = now_s;
  const bool lost = stopped_since_s_ >= 0 && now_s - stopped_since_s_ >= patience_s_;
  return lost ? "was stopped by a signal" : "";
}

void say_beside_job(const GuardianConfig& config, const std::string& text) {
  const auto rank = at(config.slots[0].rank.load());
  write_whole(STDERR_FILENO, printable(fmt::format("meshplan: warning: {}: {}\n",
                                                   config.host_of_rank[rank], text)));
}

int start_spare(const GuardianConfig& config) {
  const int guardian = ::getpid();
  const int child = ::fork();
  if (child != 0) return child;
  become_guardian(config, kNameOfSpare);
  const std::string loss = stand_by(guardian);
  say_beside_job(config, fmt::format("the guardian of its ranks (pid {}) {}: another one (pid {}) "
                                     "takes its place, the job goes on",
                                     guardian, loss, ::getpid()));
  serve_as_guardian(config);
}

}  // namespace meshplan::runtime
