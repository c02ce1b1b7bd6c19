// A line on stderr for work that takes longer than two seconds.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>

#include "command_line.hpp"

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

}  // namespace meshplan::cli
