// What looks wrong in a run that goes on: a loss that jumps, a rank that falls behind.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program/trace/step_report.hpp"

namespace meshplan::runtime {

/// A loss is a spike if it lies above the median of the last 32 by more than `threshold` times
/// their spread: the distance from their 10th to their 90th percentile over 2.5631, which is the
/// standard deviation of normal noise and ignores the spikes themselves, but at least 1 % of the
/// median. Large models see such spikes last for tens of steps (Chowdhery et al. 2022, section
/// 5.1).
class LossSpikes {
 public:
  /// @param threshold  0 = never
  /// @param history  losses before the run, oldest first
  explicit LossSpikes(double threshold, std::span<const double> history = {});

  /// The warning, at the first step of a spike.
  std::optional<std::string> check(double loss);

 private:
  bool is_spike(double loss, double& usual) const;

  double threshold_;
  std::deque<double> history_;
  bool in_spike_ = false;
};

/// A rank is slow if it computes `factor` times as long as the median of the other ranks of its
/// stage, which do the same work, in several timed steps on end. How much slower it is, is the mean
/// over these steps.
class SlowRanks {
 public:
  /// @param factor  0 = never  @param stages  of each rank
  SlowRanks(double factor, std::vector<int> stages);

  struct Found {
    program::SlowRank rank;
    std::string warning;  // at the first step of its slowness; else empty
  };
  /// Ranks that are slow: those that have just become so first, the worst first among these and
  /// among the others. @param computing_s  of each rank, this step
  std::vector<Found> check(std::span<const double> computing_s);

 private:
  double factor_;
  std::vector<int> stages_;
  std::vector<int> slow_steps_;       // on end, by rank
  std::vector<double> own_, others_;  // seconds of these, by rank; later ones count more
};

}  // namespace meshplan::runtime
