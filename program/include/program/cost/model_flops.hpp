#pragma once

#include "program/plan/plan.hpp"

namespace meshplan::program {

/// Model FLOPs of one step over all ranks (no recompute, causal attention counted half; without
/// gradients that frozen parameters make unneeded): MFU numerator.
double model_flops_per_step(const Plan& plan);

}  // namespace meshplan::program
