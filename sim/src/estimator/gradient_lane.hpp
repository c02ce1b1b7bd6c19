#pragma once

#include <utility>
#include <vector>

#include "estimator/gradient_buckets.hpp"

namespace meshplan::sim {

/// When a stage's gradients are reduced over the replicas, and what that took alone.
struct Reduction {
  double first_ready = 0;
  double end = 0;  // if the lane has nothing else to do
  double seconds = 0;

  Reduction later_by(double time) const { return {first_ready + time, end + time, seconds}; }
};

/// Plays the gradient lane: a bucket starts when its last gradient is there and the one before it
/// is over.
class GradientLane {
 public:
  /// @param gradient_begin  when each chunk's last task begins that adds to gradients
  /// @param single  it is the only one
  Reduction play(const StageBuckets& buckets, const std::vector<const ChunkCost*>& chunks,
                 const std::vector<double>& gradient_begin, bool single);

 private:
  std::vector<std::pair<double, double>> lane_;  // ready and seconds of buckets
};

}  // namespace meshplan::sim
