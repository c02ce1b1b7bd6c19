#include "os/blocked_signals.hpp"

#include <unistd.h>

namespace meshplan::runtime {

BlockedSignals::BlockedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD})
    sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  descriptor_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

BlockedSignals::~BlockedSignals() {
  ::close(descriptor_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<signalfd_siginfo> BlockedSignals::next() const {
  signalfd_siginfo info{};
  const bool got = ::read(descriptor_, &info, sizeof(info)) == sizeof(info);
  return got ? std::optional(info) : std::nullopt;
}

}  // namespace meshplan::runtime
