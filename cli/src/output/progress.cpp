#include "output/progress.hpp"

#include <cstdio>
#include <fmt/format.h>

namespace meshplan::cli {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kQuietTime{2};
constexpr std::chrono::milliseconds kRedrawInterval{100};
constexpr const char* kClearLine = "\r\033[K";

}  // namespace

Progress::Progress(std::string what, const Terminal& terminal)
    : what_(std::move(what)),
      terminal_(terminal),
      start_(steady_clock::now()),
      last_drawn_(start_) {}

Progress::~Progress() {
  if (drawn_ && terminal_.redraws_stderr) std::fputs(kClearLine, stderr);
}

void Progress::update(std::size_t done, std::size_t total) {
  const std::lock_guard lock(mutex_);
  const steady_clock::time_point now = steady_clock::now();
  if (now - start_ < kQuietTime || total == 0 || terminal_.silent) return;
  const std::size_t tenths = 10 * done / total;
  if (terminal_.redraws_stderr) {
    if (now - last_drawn_ < kRedrawInterval) return;
    fmt::print(stderr, "{}{} {} of {} ({} %)", kClearLine, what_, done, total, 100 * done / total);
    std::fflush(stderr);
  } else {
    if (tenths <= tenths_) return;
    fmt::print(stderr, "{} {} of {} ({} %)\n", what_, done, total, 10 * tenths);
  }
  tenths_ = tenths;
  last_drawn_ = now;
  drawn_ = true;
}

ElapsedTime::ElapsedTime(std::string what, const Terminal& terminal)
    : what_(std::move(what)), terminal_(terminal), thread_([this] { show(); }) {}

ElapsedTime::~ElapsedTime() {
  {
    const std::lock_guard lock(mutex_);
    is_finished_ = true;
  }
  finished_.notify_one();
  thread_.join();
}

void ElapsedTime::show() {
  const auto start = steady_clock::now();
  const auto is_finished = [this] { return is_finished_; };
  std::unique_lock lock(mutex_);
  if (terminal_.silent || finished_.wait_for(lock, kQuietTime, is_finished)) return;
  if (!terminal_.redraws_stderr) {
    fmt::print(stderr, "{} ...\n", what_);
    return;
  }
  do {
    const std::chrono::duration<double> elapsed = steady_clock::now() - start;
    fmt::print(stderr, "{}{} ... {:.0f} s", kClearLine, what_, elapsed.count());
    std::fflush(stderr);
  } while (!finished_.wait_for(lock, std::chrono::seconds(1), is_finished));
  std::fputs(kClearLine, stderr);
}

}  // namespace meshplan::cli
