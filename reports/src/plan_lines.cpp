#include "plan_lines.hpp"

#include <fmt/format.h>

#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"
#include "reports/search_report.hpp"

namespace meshplan::reports {

std::string plan_header(const program::Plan& plan, const sim::Cluster& cluster) {
  return fmt::format("model    {}\ncluster  {}\nstep     {}\nplan     {}, {} micro-batch{}\n",
                     model_line(plan.model), cluster_line(cluster), workload_line(plan.workload),
                     planner::describe(planner::candidate_of(plan)), plan.num_microbatches(),
                     plan.num_microbatches() == 1 ? "" : "es");
}

std::string software_line(const std::string& software) {
  return fmt::format("software {}: predicted as its runs are, not operation by operation\n",
                     software);
}

std::string reserve_verdict(double peak, double usable, double reserve) {
  const std::string part = fmt::format("the reserve of {:.3g} %", 100 * reserve);
  if (peak <= usable) return "keeps " + part;
  return fmt::format("breaks {}: {}", part, planner::shortage(peak, usable));
}

}  // namespace meshplan::reports
