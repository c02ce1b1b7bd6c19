#pragma once

#include "program/plan/plan.hpp"

namespace meshplan::runtime {

/// Learning rate of optimizer step `step` (0 = the first) of `num_steps`: linear warm-up from
/// peak / warmup_steps to the peak, then constant, or cosine decay to minimum_ratio * peak at
/// decay_steps (Loshchilov & Hutter 2017, equation 5, without restarts).
double learning_rate(const program::OptimizerConfig& config, int step, int num_steps);

}  // namespace meshplan::runtime
