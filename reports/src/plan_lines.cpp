#include "plan_lines.hpp"

#include <fmt/format.h>

#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"
#include "reports/search_report.hpp"

namespace meshplan::reports {

std::string plan_header(const program::Plan& plan, const sim::Cluster& cluster) {
  return fmt::format("model    {}\ncluster  {}\nstep     {}\nplan     {}, {} micro-batch{}{}\n",
                     model_line(plan.model), cluster_line(cluster), workload_line(plan.workload),
                     planner::describe(planner::candidate_of(plan)), plan.num_microbatches(),
                     plan.num_microbatches() == 1 ? "" : "es",
                     plan.deterministic ? "" : ", not deterministic");
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

Table times_table(const sim::StepPrediction& step) {
  Table table{.columns = {{"", Align::Left}, {"time"}, {"share"}}, .rows = {}};
  for (const sim::Category category : sim::all_categories())
    if (const double seconds = step.seconds[category]; seconds > 0)
      table.rows.push_back({std::string(sim::name_of(category)), planner::format_seconds(seconds),
                            percent(seconds / step.step_time_s)});
  return table;
}

std::string memory_verdict(const sim::StepPrediction& step, bool fits, double reserve) {
  if (!fits)
    return fmt::format(
        "does not fit: stage {} needs {}\n", step.largest_stage,
        planner::shortage(step.peak_memory_bytes, step.capacity_bytes, step.of_host));
  return fmt::format("fits: {} of {} on stage {}; {}\n",
                     planner::format_bytes(step.peak_memory_bytes),
                     planner::format_bytes(step.capacity_bytes), step.largest_stage,
                     reserve_verdict(step.peak_memory_bytes, step.usable_bytes(reserve), reserve));
}

}  // namespace meshplan::reports
