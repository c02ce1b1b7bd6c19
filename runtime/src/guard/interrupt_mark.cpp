#include "guard/interrupt_mark.hpp"

#include <atomic>
#include <csignal>
#include <unistd.h>
#include <utility>

#include "launch/launcher_line.hpp"
#include "runtime/launch/proxy_exit_code.hpp"

namespace meshplan::runtime {
namespace {

// A signal handler can reach nothing but statics.
std::atomic<StatusSlot*> marked_slot{nullptr};
ReplacedActions replaced_actions;

extern "C" void on_interrupt_of_rank(int number) {
  StatusSlot* slot = marked_slot.load();
  if (slot != nullptr) slot->state.store(RankState::Interrupted);
  for (const ReplacedAction& one : replaced_actions)
    if (one.signal == number && one.before.sa_handler != SIG_DFL &&
        one.before.sa_handler != SIG_IGN && (one.before.sa_flags & SA_SIGINFO) == 0)
      one.before.sa_handler(number);
  let_proxy_see_exit_code();
  _exit(kInterrupted);
}

struct sigaction action_for(StatusSlot& slot) {
  marked_slot = &slot;
  struct sigaction action {};
  action.sa_handler = on_interrupt_of_rank;
  return action;
}

}  // namespace

InterruptMark::InterruptMark(StatusSlot& slot)
    : handlers_(std::in_place, replaced_actions, action_for(slot)) {}

InterruptMark::~InterruptMark() {
  handlers_.reset();  // until then there is a slot to mark
  replaced_actions = {};
  marked_slot = nullptr;
}

}  // namespace meshplan::runtime
