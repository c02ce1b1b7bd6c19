#include "process/interrupt.hpp"

#include <array>
#include <atomic>

namespace meshplan::cli {
namespace {

// A signal handler can reach nothing but statics.
std::atomic<bool> interrupt_made{false};
static_assert(std::atomic<bool>::is_always_lock_free);
std::array<struct sigaction, NSIG> actions_before_interrupt;

extern "C" void note_interrupt(int number) {
  if (interrupt_made.exchange(true)) {
    sigaction(number, &actions_before_interrupt[static_cast<std::size_t>(number)], nullptr);
    raise(number);
  }
}

}  // namespace

InterruptRequest::InterruptRequest(std::initializer_list<int> signals) {
  interrupt_made = false;
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : signals) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    actions_before_interrupt[static_cast<std::size_t>(number)] = before;
    before_.emplace_back(number, before);
    sigaction(number, &action, nullptr);
  }
}

InterruptRequest::~InterruptRequest() {
  for (const auto& [number, before] : before_) sigaction(number, &before, nullptr);
}

bool InterruptRequest::made() const {
  return interrupt_made;
}

}  // namespace meshplan::cli
