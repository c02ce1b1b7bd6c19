// A step drawn with letters: a row a stage, a column a slice of time.
#pragma once

#include <string>

#include "program/trace/trace.hpp"

namespace meshplan::reports {

struct StepTimelineOptions {
  int columns = 80;     // equal slices of the step; with what stands beside them 100 at most
  bool colors = false;  // escape sequences of a terminal
};

/// Of each stage the first rank that the trace has, in its first step. A column shows what takes
/// most of its slice: F forward, R recompute, B backward (of a split one the input half), W its
/// weight half, O optimizer and sums of gradients, c communication that nothing hides, h host,
/// . nothing. W is shown where the plan's schedule computes it by itself.
/// @throws ConfigError for a trace without operations
std::string step_timeline_text(const program::Trace& trace,
                               const StepTimelineOptions& options = {});

}  // namespace meshplan::reports
