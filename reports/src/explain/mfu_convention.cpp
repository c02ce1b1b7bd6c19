#include "explain/mfu_convention.hpp"

#include <fmt/format.h>

#include "plan_lines.hpp"
#include "program/plan/plan_names.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {

std::string mfu_peak(const planner::PricedPlan& priced) {
  return fmt::format("{} ranks at a dense {} peak of {:.4g} TFLOP/s",
                     grouped(priced.plan.parallel.world_size()),
                     program::precision_name(priced.plan.workload), priced.peak_flop_per_s / kTera);
}

}  // namespace meshplan::reports
