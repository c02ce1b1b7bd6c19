#include "runtime/os/end_signal_handlers.hpp"

#include <algorithm>
#include <unistd.h>

namespace meshplan::runtime {

// A stack of its own: oneDNN's sgemm (2.6) points the stack register into a block of its heap,
// where the frame of a signal (some kilobytes of vector registers) would overwrite the blocks
// before it.
EndSignalHandlers::EndSignalHandlers(ReplacedActions& replaced, struct sigaction action)
    : replaced_(replaced),
      stack_(static_cast<std::size_t>(std::max<long>(sysconf(_SC_SIGSTKSZ), 65536))) {
  const stack_t stack{.ss_sp = stack_.data(), .ss_flags = 0, .ss_size = stack_.size()};
  sigaltstack(&stack, &before_stack_);
  action.sa_flags |= SA_ONSTACK;
  sigfillset(&action.sa_mask);
  constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ReplacedAction& one = replaced_[i];
    one = {.signal = kSignals[i]};
    sigaction(one.signal, nullptr, &one.before);
    if (one.signal == SIGHUP && one.before.sa_handler == SIG_IGN) continue;  // nohup
    one.replaced = sigaction(one.signal, &action, nullptr) == 0;
  }
}

EndSignalHandlers::~EndSignalHandlers() {
  for (const ReplacedAction& one : replaced_)
    if (one.replaced) sigaction(one.signal, &one.before, nullptr);
  sigaltstack(&before_stack_, nullptr);
}

}  // namespace meshplan::runtime
