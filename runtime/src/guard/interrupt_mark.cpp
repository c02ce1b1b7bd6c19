#include "guard/interrupt_mark.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <unistd.h>

#include "launch/launcher_line.hpp"

namespace meshplan::runtime {
namespace {

struct Replaced {
  int signal = 0;
  bool replaced = false;
  struct sigaction before {};
};

// A signal handler can reach nothing but statics.
std::atomic<StatusSlot*> marked_slot{nullptr};
std::array<Replaced, 4> replaced_actions;

extern "C" void on_interrupt_of_rank(int number) {
  StatusSlot* slot = marked_slot.load();
  if (slot != nullptr) slot->state.store(RankState::Interrupted);
  for (const Replaced& one : replaced_actions)
    if (one.signal == number && one.before.sa_handler != SIG_DFL &&
        one.before.sa_handler != SIG_IGN && (one.before.sa_flags & SA_SIGINFO) == 0)
      one.before.sa_handler(number);
  _exit(kInterrupted);
}

}  // namespace

InterruptMark::InterruptMark(StatusSlot& slot)
    : stack_(static_cast<std::size_t>(std::max<long>(sysconf(_SC_SIGSTKSZ), 65536))) {
  marked_slot = &slot;
  // A stack of its own, for the reason in stop_signal.cpp.
  const stack_t stack{.ss_sp = stack_.data(), .ss_flags = 0, .ss_size = stack_.size()};
  sigaltstack(&stack, &before_stack_);
  constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    Replaced& one = replaced_actions[i];
    one = {.signal = kSignals[i]};
    sigaction(one.signal, nullptr, &one.before);
    if (one.signal == SIGHUP && one.before.sa_handler == SIG_IGN) continue;  // nohup
    struct sigaction action {};
    action.sa_handler = on_interrupt_of_rank;
    action.sa_flags = SA_ONSTACK;
    sigfillset(&action.sa_mask);
    one.replaced = sigaction(one.signal, &action, nullptr) == 0;
  }
}

InterruptMark::~InterruptMark() {
  for (Replaced& one : replaced_actions)
    if (one.replaced) sigaction(one.signal, &one.before, nullptr);
  replaced_actions = {};
  marked_slot = nullptr;
  sigaltstack(&before_stack_, nullptr);
}

}  // namespace meshplan::runtime
