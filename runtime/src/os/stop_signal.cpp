#include "runtime/os/stop_signal.hpp"

#include <algorithm>
#include <unistd.h>

namespace meshplan::runtime {
namespace {

// A signal handler can reach nothing but statics.
volatile std::sig_atomic_t stop_requested = 0;
struct sigaction action_before_term;
struct sigaction action_before_user;

extern "C" void on_stop(int number) {
  if (stop_requested != 0) {
    sigaction(number, number == SIGTERM ? &action_before_term : &action_before_user, nullptr);
    raise(number);
  }
  stop_requested = 1;
}

}  // namespace

// A stack of its own: oneDNN's sgemm (2.6) points the stack register into a block of its heap,
// where the frame of a signal (some kilobytes of vector registers) would overwrite the blocks
// before it.
StopSignal::StopSignal()
    : stack_(static_cast<std::size_t>(std::max<long>(sysconf(_SC_SIGSTKSZ), 65536))) {
  stop_requested = 0;
  const stack_t stack{.ss_sp = stack_.data(), .ss_flags = 0, .ss_size = stack_.size()};
  sigaltstack(&stack, &before_stack_);
  struct sigaction action {};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, &before_term_);
  action_before_term = before_term_;
  sigaction(SIGUSR1, &action, &before_user_);
  action_before_user = before_user_;
}

StopSignal::~StopSignal() {
  sigaction(SIGTERM, &before_term_, nullptr);
  sigaction(SIGUSR1, &before_user_, nullptr);
  sigaltstack(&before_stack_, nullptr);
}

bool StopSignal::requested() const {
  return stop_requested != 0;
}

}  // namespace meshplan::runtime
