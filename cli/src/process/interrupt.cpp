#include "process/interrupt.hpp"

#include <atomic>

namespace meshplan::cli {
namespace {

// A signal handler can reach nothing but statics.
std::atomic<bool> interrupt_made{false};
static_assert(std::atomic<bool>::is_always_lock_free);
struct sigaction action_before_interrupt;

extern "C" void note_interrupt(int number) {
  if (interrupt_made.exchange(true)) {
    sigaction(number, &action_before_interrupt, nullptr);
    raise(number);
  }
}

}  // namespace

InterruptRequest::InterruptRequest() {
  interrupt_made = false;
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, nullptr, &before_);
  action_before_interrupt = before_;
  sigaction(SIGINT, &action, nullptr);
}

InterruptRequest::~InterruptRequest() {
  sigaction(SIGINT, &before_, nullptr);
}

bool InterruptRequest::made() const {
  return interrupt_made;
}

}  // namespace meshplan::cli
