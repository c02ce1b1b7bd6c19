#include "planner/scaling/figures.hpp"

#include "explain/price_played.hpp"
#include "planner/search/space.hpp"

namespace meshplan::planner {

double PlanFigures::tokens_per_s() const {
  return static_cast<double>(plan.workload.global_batch_size * plan.workload.seq_len) /
         step.step_time_s;
}

std::optional<double> PlanFigures::bytes_sent() const {
  if (!plan.stack.is_own()) return std::nullopt;
  double sum = 0;
  for (const sim::LinkTraffic& row : traffic) sum += row.sent_bytes;
  return sum;
}

double PlanFigures::exposed_s() const {
  double sum = 0;
  for (const sim::StepPart part : sim::all_step_parts())
    if (is_communication(part)) sum += parts[part];
  return sum;
}

sim::StepPart PlanFigures::largest_loss() const {
  sim::StepPart largest = sim::StepPart::Beyond;
  for (const sim::StepPart part : sim::all_step_parts())
    if (part != sim::StepPart::Ideal && parts[part] > parts[largest]) largest = part;
  return largest;
}

bool is_communication(sim::StepPart part) {
  switch (part) {
    case sim::StepPart::Tensor:
    case sim::StepPart::Context:
    case sim::StepPart::Experts:
    case sim::StepPart::Sends:
    case sim::StepPart::Data:
      return true;
    default:
      return false;
  }
}

PlanFigures figures_of(const program::Plan& plan, const sim::Cluster& cluster) {
  const std::string description = describe(candidate_of(plan));
  if (!plan.stack.is_own()) return {price(plan, cluster), description, {}};
  const sim::PlayedPlan played = sim::play_plan(plan, cluster);
  return {price_played(played, plan, cluster), description, sim::link_traffic(played, cluster)};
}

}  // namespace meshplan::planner
