#include "progress.hpp"

#include <cstdio>
#include <fmt/format.h>

namespace meshplan::cli {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kQuietTime{2};
constexpr std::chrono::milliseconds kRedrawInterval{100};

}  // namespace

Progress::Progress(std::string what, const Terminal& terminal)
    : what_(std::move(what)),
      terminal_(terminal),
      start_(steady_clock::now()),
      last_drawn_(start_) {}

Progress::~Progress() {
  if (drawn_ && terminal_.redraws_stderr) std::fputs("\r\033[K", stderr);
}

void Progress::update(std::size_t done, std::size_t total) {
  const std::lock_guard lock(mutex_);
  const steady_clock::time_point now = steady_clock::now();
  if (now - start_ < kQuietTime || total == 0) return;
  const std::size_t tenths = 10 * done / total;
  if (terminal_.redraws_stderr) {
    if (now - last_drawn_ < kRedrawInterval) return;
    fmt::print(stderr, "\r\033[K{} {} of {} ({} %)", what_, done, total, 100 * done / total);
    std::fflush(stderr);
  } else {
    if (tenths <= tenths_) return;
    fmt::print(stderr, "{} {} of {} ({} %)\n", what_, done, total, 10 * tenths);
  }
  tenths_ = tenths;
  last_drawn_ = now;
  drawn_ = true;
}

}  // namespace meshplan::cli
