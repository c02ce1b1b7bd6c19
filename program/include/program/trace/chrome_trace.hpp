// Traces as Chrome's JSON, which ui.perfetto.dev opens. docs/compare/README.md lists its rules.
#pragma once

#include <string>
#include <vector>

#include "program/trace/trace.hpp"

namespace meshplan::program {

/// Numbers of a rank that change over the step, shown as counters beside its lanes.
struct CounterTrack {
  struct Sample {
    double time_s = 0;           // from then on, on the clock of the rank's spans
    std::vector<double> values;  // as many as there are series
  };
  int rank = 0;
  std::string name;                 // "memory, MiB"
  std::vector<std::string> series;  // "activations", ...
  std::vector<Sample> samples;
};

/// pid = rank, tid = lane, arrows from sends to receives and from the last member of a collective
/// to the others; traced steps follow one another, counters are of the first. Spans of a lane that
/// overlap have further tids.
std::string to_chrome_trace(const Trace& trace, const std::vector<CounterTrack>& counters = {});

/// Both, aligned at the steps' common start: the measured rank r is the process world_size + r,
/// right below the predicted one. @param counters  of the prediction
std::string to_chrome_trace(const Trace& predicted, const Trace& measured,
                            const std::vector<CounterTrack>& counters = {});

}  // namespace meshplan::program
