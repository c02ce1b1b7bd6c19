// What `meshplan calibrate` says about GPUs: what they are, how they reach one another, and what
// copies and launches cost.
#pragma once

#include <string>
#include <vector>

#include "program/calibration/calibration.hpp"

namespace meshplan::reports {

/// Empty for a job on processor cores.
std::string gpu_text(const program::CalibrationSamples& job);

/// One line that says how quiet the machine was; empty for jobs on GPUs.
std::string quietness_text(const std::vector<program::CalibrationSamples>& jobs);

}  // namespace meshplan::reports
