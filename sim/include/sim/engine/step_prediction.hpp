// Step time of one plan, where it goes, and memory: what the estimator and the engine both answer.
#pragma once

#include <limits>
#include <optional>

#include "sim/engine/breakdown.hpp"
#include "sim/engine/memory_need.hpp"

namespace meshplan::sim {

/// Messages that are so many times as large are taken to be bound by bandwidth alone.
constexpr int kMuchLarger = 64;

/// Seconds of a step that a stage spends inside its tasks, as the mean over the stages: what no
/// schedule, division into stages or reduction of gradients makes less.
struct BusyTime {
  double computing = 0;  // with recompute
  double forward = 0;    // the part of it in forward tasks
  double recompute = 0;
  double moving = 0;  // communication that a task waits for
  /// Communication on the busiest lane, without recompute, at the price of messages kMuchLarger
  /// times as large: what micro-batches that are larger, by no more than that, do not make less.
  double link = 0;
  bool operator==(const BusyTime&) const = default;
};

/// What a caller would do without: a plan that takes longer, or leaves less memory free.
struct Wanted {
  double step_time_s = std::numeric_limits<double>::infinity();  // 0: no time is asked for
  bool busy = true;                                              // without a time: are busy times?
  std::optional<double> memory_reserve;                          // part of the device
};

struct StepPrediction {
  double step_time_s = 0;
  Breakdown seconds;             // sums to step_time_s
  double peak_memory_bytes = 0;  // of the device; of_host: of its host, which does not suffice
  double state_bytes = 0;        // the part of it in parameters, gradients and optimizer, if known
  double kept_bytes = 0;  // the part of it in activations that wait for their backward, if known
  int largest_stage = 0;  // with the least room
  double capacity_bytes = 0;  // of what peak_memory_bytes is of
  bool of_host = false;
  double mfu = 0;  // model FLOPs over ranks * peak of the plan's precision
  /// `step_time_s` is only known not to be less, and `seconds` and `mfu` are empty: see Wanted.
  bool at_least = false;
  /// An estimate of what the closed form only comes near: see is_rough().
  bool rough = false;
  double relative_sigma = 0;  // of the step time's logarithm, of other software; 0: not known
  BusyTime busy;              // of an estimate; `link` is 0 for other software

  /// @param reserve  part of the device that is to stay free
  bool fits(double reserve = 0) const { return peak_memory_bytes <= usable_bytes(reserve); }
  double usable_bytes(double reserve) const { return capacity_bytes * (1 - reserve); }
  MemoryNeed need() const {
    return {.bytes = peak_memory_bytes, .capacity_bytes = capacity_bytes, .of_host = of_host};
  }
};

}  // namespace meshplan::sim
