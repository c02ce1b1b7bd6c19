#include "os/blocked_signals.hpp"

#include <unistd.h>

namespace meshplan::runtime {

BlockedSignals::BlockedSignals() {
  struct sigaction hangup {};
  ignores_hangup_ = sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD})
    if (signal != SIGHUP || !ignores_hangup_) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before_pipe_);
  descriptor_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

BlockedSignals::~BlockedSignals() {
  ::close(descriptor_);
  sigaction(SIGPIPE, &before_pipe_, nullptr);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void BlockedSignals::undo_in_child() const {
  sigaction(SIGPIPE, &before_pipe_, nullptr);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<signalfd_siginfo> BlockedSignals::next() const {
  signalfd_siginfo info{};
  const bool got = ::read(descriptor_, &info, sizeof(info)) == sizeof(info);
  return got ? std::optional(info) : std::nullopt;
}

}  // namespace meshplan::runtime
