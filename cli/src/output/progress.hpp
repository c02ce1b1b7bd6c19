// A line on stderr for work that takes longer than two seconds.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

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
  struct Line;
  std::unique_ptr<Line> line_;
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
  struct Watch;
  std::unique_ptr<Watch> watch_;
};

}  // namespace meshplan::cli
