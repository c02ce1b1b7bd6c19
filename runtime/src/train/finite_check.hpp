// A step whose loss or gradients are not finite has broken the weights: every rank says so alike.
#pragma once

#include "kernels/backend.hpp"
#include "runtime/comm/communicator.hpp"
#include "train/trainer.hpp"

namespace meshplan::runtime {

/// Called by all ranks with the outcome of step `step` (1 = the first), which all of them have.
/// @throws SharedError if it is not finite: names the step, the loss, the norm, and the first
/// gradient that is not finite in the order of the backward pass, with its rank
void require_finite(const StepOutcome& outcome, int step, Trainer& trainer, Communicator& world,
                    kernels::Backend& backend);

}  // namespace meshplan::runtime
