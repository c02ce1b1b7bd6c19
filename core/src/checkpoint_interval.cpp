#include "core/checkpoint_interval.hpp"

#include <algorithm>
#include <cmath>

namespace meshplan {

double best_checkpoint_interval_s(double checkpoint_s, double mtbf_s) {
  if (checkpoint_s >= 2 * mtbf_s) return mtbf_s;
  const double x = checkpoint_s / (2 * mtbf_s);
  return std::sqrt(2 * checkpoint_s * mtbf_s) * (1 + std::sqrt(x) / 3 + x / 9) - checkpoint_s;
}

double least_checkpoint_interval_s(const CheckpointTimes& times) {
  return std::max(times.complete_s, times.step_s);
}

double checkpoint_interval_s(const CheckpointTimes& times, double mtbf_s) {
  return std::max(best_checkpoint_interval_s(times.stall_s, mtbf_s),
                  least_checkpoint_interval_s(times));
}

int checkpoint_interval_steps(const CheckpointTimes& times, double mtbf_s) {
  constexpr double kMostSteps = 1e9, kShortestStep = 1e-9;
  const double steps =
      std::ceil(checkpoint_interval_s(times, mtbf_s) / std::max(times.step_s, kShortestStep));
  return static_cast<int>(std::clamp(steps, 1.0, kMostSteps));
}

}  // namespace meshplan
