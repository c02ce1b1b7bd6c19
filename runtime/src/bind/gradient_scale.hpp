// The scale of gradients inside a step.
#pragma once

#include "program/plan/plan.hpp"

namespace meshplan::runtime {

/// What the gradient of a token's loss is multiplied by, but for a loss scale: 1 / tokens of the
/// global batch that count in the loss.
float gradient_scale_of(double loss_tokens);

/// fp16 keeps 5 bits of exponent: gradients below 6e-8 would vanish.
bool scales_loss(const program::Workload& workload);

}  // namespace meshplan::runtime
