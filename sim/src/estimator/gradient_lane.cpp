#include "estimator/gradient_lane.hpp"

#include <algorithm>

namespace meshplan::sim {

Reduction GradientLane::play(const StageBuckets& buckets,
                             const std::vector<const ChunkCost*>& chunks,
                             const std::vector<double>& gradient_begin, bool single) {
  lane_.clear();
  for (const Bucket& bucket : buckets.all) {
    double ready = 0;
    for (std::size_t p = bucket.begin_part; p < bucket.end_part; ++p) {
      const auto& [chunk, last] = buckets.parts[p];
      const ReadyGradients& gradients = chunks[chunk]->ready[last];
      ready = std::max(ready, gradient_begin[chunk] +
                                  (single ? gradients.seconds_of_single : gradients.seconds));
    }
    lane_.emplace_back(ready, bucket.seconds);
  }
  const auto by_time = [](const auto& a, const auto& b) { return a.first < b.first; };
  if (!std::is_sorted(lane_.begin(), lane_.end(), by_time))
    std::ranges::stable_sort(lane_, by_time);
  Reduction reduction;
  for (const auto& [ready, seconds] : lane_) {
    if (reduction.seconds == 0) reduction.first_ready = ready;
    reduction.end = std::max(reduction.end, ready) + seconds;
    reduction.seconds += seconds;
  }
  return reduction;
}

}  // namespace meshplan::sim
