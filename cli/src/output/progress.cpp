#include "output/progress.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <fmt/format.h>
#include <mutex>
#include <thread>
#include <utility>

#include "core/printable.hpp"

namespace meshplan::cli {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kQuietTime{2};
constexpr std::chrono::milliseconds kRedrawInterval{100};
constexpr const char* kClearLine = "\r\033[K";

}  // namespace

struct Progress::Line {
  std::string what;
  Terminal terminal;
  steady_clock::time_point start = steady_clock::now();
  std::mutex mutex = {};
  steady_clock::time_point last_drawn = start;
  std::size_t tenths = 0;
  bool drawn = false;
};

Progress::Progress(std::string what, const Terminal& terminal)
    : line_(new Line{.what = printable_line(what), .terminal = terminal}) {}

Progress::~Progress() {
  if (line_->drawn && line_->terminal.redraws_stderr) std::fputs(kClearLine, stderr);
}

void Progress::update(std::size_t done, std::size_t total) {
  Line& line = *line_;
  const std::lock_guard lock(line.mutex);
  const steady_clock::time_point now = steady_clock::now();
  if (now - line.start < kQuietTime || total == 0 || line.terminal.silent) return;
  const std::size_t tenths = 10 * done / total;
  if (line.terminal.redraws_stderr) {
    if (now - line.last_drawn < kRedrawInterval) return;
    fmt::print(stderr, "{}{} {} of {} ({} %)", kClearLine, line.what, done, total,
               100 * done / total);
    std::fflush(stderr);
  } else {
    if (tenths <= line.tenths) return;
    fmt::print(stderr, "{} {} of {} ({} %)\n", line.what, done, total, 10 * tenths);
  }
  line.tenths = tenths;
  line.last_drawn = now;
  line.drawn = true;
}

struct ElapsedTime::Watch {
  Watch(std::string said, const Terminal& shown_on)
      : what(std::move(said)), terminal(shown_on), thread([this] { show(); }) {}
  void show();

  std::string what;
  Terminal terminal;
  std::mutex mutex;
  std::condition_variable finished;
  bool is_finished = false;
  std::thread thread;  // last: it uses what stands above
};

ElapsedTime::ElapsedTime(std::string what, const Terminal& terminal)
    : watch_(std::make_unique<Watch>(printable_line(what), terminal)) {}

ElapsedTime::~ElapsedTime() {
  {
    const std::lock_guard lock(watch_->mutex);
    watch_->is_finished = true;
  }
  watch_->finished.notify_one();
  watch_->thread.join();
}

void ElapsedTime::Watch::show() {
  const auto start = steady_clock::now();
  const auto ended = [this] { return is_finished; };
  std::unique_lock lock(mutex);
  if (terminal.silent || finished.wait_for(lock, kQuietTime, ended)) return;
  if (!terminal.redraws_stderr) {
    fmt::print(stderr, "{} ...\n", what);
    return;
  }
  do {
    const std::chrono::duration<double> elapsed = steady_clock::now() - start;
    fmt::print(stderr, "{}{} ... {:.0f} s", kClearLine, what, elapsed.count());
    std::fflush(stderr);
  } while (!finished.wait_for(lock, std::chrono::seconds(1), ended));
  std::fputs(kClearLine, stderr);
}

}  // namespace meshplan::cli
