// What `meshplan calibrate` says about GPUs: what they are, how they reach one another, and what
// copies and launches cost.
#pragma once

#include <string>

#include "program/calibration.hpp"

namespace meshplan::reports {

/// Empty for a job on processor cores.
std::string gpu_text(const program::CalibrationSamples& job);

}  // namespace meshplan::reports
