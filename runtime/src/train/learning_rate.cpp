#include "train/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace meshplan::runtime {

double learning_rate(const program::OptimizerConfig& config, int step, int num_steps) {
  if (step < config.warmup_steps) return config.learning_rate * (step + 1) / config.warmup_steps;
  if (config.schedule == program::LearningRateSchedule::Constant) return config.learning_rate;
  const int end = config.decay_steps > 0 ? config.decay_steps : num_steps;
  const double span = std::max(1, end - config.warmup_steps);
  const double progress = std::clamp((step - config.warmup_steps) / span, 0.0, 1.0);
  const double minimum = config.learning_rate * config.minimum_ratio;
  return minimum +
         (config.learning_rate - minimum) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace meshplan::runtime
