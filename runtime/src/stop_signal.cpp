#include "runtime/stop_signal.hpp"

namespace meshplan::runtime {
namespace {

// A signal handler can reach nothing but statics.
volatile std::sig_atomic_t stop_requested = 0;

extern "C" void on_stop(int number) {
  if (stop_requested != 0) {
    std::signal(number, SIG_DFL);
    raise(number);
  }
  stop_requested = 1;
}

}  // namespace

StopSignal::StopSignal() {
  stop_requested = 0;
  struct sigaction action {};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, &before_term_);
  sigaction(SIGUSR1, &action, &before_user_);
}

StopSignal::~StopSignal() {
  sigaction(SIGTERM, &before_term_, nullptr);
  sigaction(SIGUSR1, &before_user_, nullptr);
}

bool StopSignal::requested() const {
  return stop_requested != 0;
}

}  // namespace meshplan::runtime
