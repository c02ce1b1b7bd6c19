// Where one rank's step went: every instant in one phase, and communication by what hid it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "execute/executor.hpp"
#include "program/program.hpp"

namespace meshplan::runtime {

constexpr int kNumGroups = 32;      // room for every program::Group
constexpr int kNumTimedPhases = 8;  // program::phase_names()

struct RankTimes {
  std::array<double, kNumTimedPhases> phases_s{};  // they sum to the step
  std::array<double, kNumGroups> exposed_s{};      // by program::Group; messages count as Pp
  std::array<double, kNumGroups> hidden_s{};
  std::vector<double> buckets_s;  // by RankTimer::bucket_bytes()

  /// Seconds of arithmetic: all phases but host, communication and idle.
  double computing_s() const;
};

/// Sorts the intervals of a rank's executor.
class RankTimer {
 public:
  explicit RankTimer(const program::Program& program);

  /// Where operations overlap, computing comes before loading data, and that before communication;
  /// of several communications in progress, the one that ends first is the one that was waited for.
  /// A communication that the host drives ends when its end is seen.
  /// @param intervals  one per instance of the program
  RankTimes measure(std::span<const Interval> intervals, double step_s) const;

  /// Bytes of every reduction of gradients over replicas, in issue order.
  const std::vector<std::int64_t>& bucket_bytes() const { return bucket_bytes_; }

 private:
  struct Kind {
    int phase = 0;  // of what computes
    int group = -1;
    int bucket = -1;
  };
  static Kind kind_of(const program::Operation& operation);

  std::vector<Kind> kinds_;  // by instance
  std::vector<std::int64_t> bucket_bytes_;
};

}  // namespace meshplan::runtime
