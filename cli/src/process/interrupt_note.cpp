#include "process/interrupt_note.hpp"

namespace meshplan::cli {
namespace {

// A signal handler can reach nothing but statics.
volatile std::sig_atomic_t interrupt_noted = 0;
void (*handler_before)(int) = SIG_DFL;

extern "C" void note_interrupt(int number) {
  if (interrupt_noted == 0) {
    interrupt_noted = 1;
    return;
  }
  if (handler_before != SIG_DFL && handler_before != SIG_IGN) handler_before(number);
  std::signal(number, SIG_DFL);
  std::raise(number);
}

}  // namespace

InterruptNote::InterruptNote() {
  interrupt_noted = 0;
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_int_);
  sigaction(SIGTERM, &action, &before_term_);
  sigaction(SIGHUP, nullptr, &before_hangup_);
  // Who ignores a hang-up (nohup) wants to outlive it.
  if (before_hangup_.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  handler_before = before_int_.sa_handler;
}

InterruptNote::~InterruptNote() {
  sigaction(SIGINT, &before_int_, nullptr);
  sigaction(SIGTERM, &before_term_, nullptr);
  sigaction(SIGHUP, &before_hangup_, nullptr);
}

bool InterruptNote::was_interrupted() const {
  return interrupt_noted != 0;
}

}  // namespace meshplan::cli
