// Where viewers draw a trace: steps one after another, and tracks on which nothing overlaps.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "program/trace/trace.hpp"

namespace meshplan::program {

/// Seconds from the first span to each step's common start, which spans count from, by step: no
/// span of a step begins before the last one of the step before has ended.
std::map<int, double> step_starts(const Trace& trace);

/// Spans of a lane that overlap are on further tracks of it.
class Tracks {
 public:
  /// @param trace  must outlive it. @param starts  of its steps
  Tracks(const Trace& trace, const std::map<int, double>& starts);

  int of(std::size_t span) const { return track_of_[span]; }
  /// A number for each track of a rank.
  int thread_of(std::size_t span) const {
    return static_cast<int>(trace_.spans[span].lane) + kNumLanes * of(span);
  }

 private:
  const Trace& trace_;
  std::vector<int> track_of_;
};

}  // namespace meshplan::program
