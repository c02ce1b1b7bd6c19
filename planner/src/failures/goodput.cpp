#include "planner/failures/goodput.hpp"

#include <cmath>

namespace meshplan::planner {

double checkpoint_goodput(const FailureTimes& times, double interval_s) {
  const double mtbf = times.mtbf_s;
  const double slowdown = mtbf * std::exp((times.restart_s + times.lag_s) / mtbf) *
                          std::expm1((interval_s + times.stall_s) / mtbf) / interval_s;
  return std::isfinite(slowdown) ? 1 / slowdown : 0;
}

}  // namespace meshplan::planner
