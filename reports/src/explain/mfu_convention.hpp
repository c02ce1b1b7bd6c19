// What MFU counts and what it divides by, for all reports that show it.
#pragma once

#include <string>

#include "planner/explain/priced_plan.hpp"

namespace meshplan::reports {

/// To be followed by what it is divided by.
constexpr const char* kMfuConvention =
    "MFU counts 3 forwards of the model, attention by the pairs that its mask leaves and nothing "
    "that is computed again\n(Chowdhery et al. 2022, appendix B), over ";

/// "64 ranks at a dense bf16 peak of 989.4 TFLOP/s"
std::string mfu_peak(const planner::PricedPlan& priced);

}  // namespace meshplan::reports
