// A line on stderr for work that takes longer than two seconds.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>

#include "output/terminal.hpp"

namespace meshplan::cli {

/// On a terminal one line is redrawn; elsewhere every tenth of the work gets a line of its own.
/// Safe to call from any thread.
class Progress {
 public:
  Progress(std::string what, const Terminal& terminal);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::size_t done, std::size_t total);

 private:
  std::string what_;
  Terminal terminal_;
  std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point last_drawn_;
  std::size_t tenths_ = 0;
  bool drawn_ = false;
};

/// For work that cannot tell how far it is: says after two seconds what is going on, and on a
/// terminal for how long.
class ElapsedTime {
 public:
  ElapsedTime(std::string what, const Terminal& terminal);
  ~ElapsedTime();
  ElapsedTime(const ElapsedTime&) = delete;
  ElapsedTime& operator=(const ElapsedTime&) = delete;

 private:
  void show();

  std::string what_;
  Terminal terminal_;
  std::mutex mutex_;
  std::condition_variable finished_;
  bool is_finished_ = false;
  std::thread thread_;  // last: it uses what stands above
};

}  // namespace meshplan::cli
