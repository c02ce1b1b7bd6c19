#include "planner/explain/priced_plan.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "explain/price_played.hpp"
#include "planner/rules/rules.hpp"
#include "program/checks/check.hpp"
#include "sim/engine/memory.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/prices/fitted_constants.hpp"
#include "sim/prices/pricing.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/run_terms.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::planner {
namespace {

StageMemoryParts memory_parts(int stage, double capacity, std::vector<MemoryPart> parts) {
  std::erase_if(parts, [](const MemoryPart& part) { return part.bytes <= 0; });
  std::ranges::stable_sort(parts, std::ranges::greater{}, &MemoryPart::bytes);
  return {.stage = stage, .parts = std::move(parts), .capacity_bytes = capacity};
}

std::vector<StageMemoryParts> memory_parts(const sim::MemoryReport& report) {
  std::vector<StageMemoryParts> stages;
  for (const sim::StageMemory& m : report.stages)
    stages.push_back(memory_parts(m.stage, m.capacity,
                                  {{"weights", m.parameters},
                                   {"master weights", m.master_parameters},
                                   {"gradients", m.gradients},
                                   {"optimizer state", m.optimizer},
                                   {"activations", m.activations},
                                   {"transient values", m.transient},
                                   {"workspace", m.workspace},
                                   {"values between stages", m.boundary},
                                   {"communication buffers", m.communication},
                                   {"context of the device", m.runtime_base}}));
  return stages;
}

std::vector<StageMemoryParts> memory_parts(const std::vector<sim::RunMemory>& of_stages) {
  std::vector<StageMemoryParts> stages;
  for (const sim::RunMemory& m : of_stages)
    stages.push_back(memory_parts(m.stage, m.capacity,
                                  {{"weights", m.parameters},
                                   {"gradients", m.gradients},
                                   {"optimizer state", m.optimizer},
                                   {"activations", m.activations},
                                   {"transient values", m.transient},
                                   {"context of the device", m.context}}));
  return stages;
}

/// In proportion to what an adjustment made of the pipeline.
double exposed_sends(const sim::PreparedRun& run, const sim::RunPrediction& prediction) {
  const sim::Constants constants = sim::constants_of(sim::fitted_constants());
  const double sends = run.exposed_sends(constants);
  if (prediction.narrowed.empty() || sends <= 0) return sends;
  return sends * prediction.seconds.pipeline / run.predict(constants).seconds.pipeline;
}

PricedPlan price_other(const program::Plan& plan, const sim::Cluster& cluster,
                       const sim::Adjustment* adjustment) {
  const sim::PreparedRun run(sim::run_of(plan, cluster.name), sim::data_sheet_of(cluster));
  const sim::RunPrediction prediction = sim::predicted(run, adjustment);
  return {{plan, sim::step_of(prediction, plan, cluster), sim::terms_of(prediction, run.run())},
          sim::parts_of(prediction, exposed_sends(run, prediction), plan, cluster),
          memory_parts(run.memory_of_stages()),
          sim::peak_flop_per_s(cluster, plan.workload)};
}

}  // namespace

double StageMemoryParts::total_bytes() const {
  double sum = 0;
  for (const MemoryPart& part : parts) sum += part.bytes;
  return sum;
}

PricedPlan price_played(const sim::PlayedPlan& played, const program::Plan& plan,
                        const sim::Cluster& cluster) {
  sim::SimulatedStep simulated = sim::step_of(played, plan, cluster);
  return {{plan, simulated.step, std::move(simulated.terms)},
          sim::parts_of(played, plan, cluster),
          memory_parts(played.result.memory),
          sim::peak_flop_per_s(cluster, plan.workload)};
}

PricedPlan price(const program::Plan& plan, const sim::Cluster& cluster,
                 const sim::Adjustment* adjustment) {
  if (!plan.stack.is_own()) return price_other(plan, cluster, adjustment);
  return price_played(sim::play_plan(plan, cluster), plan, cluster);
}

std::optional<PricedPlan> price_within(std::int64_t most_events, const program::Plan& plan,
                                       const sim::Cluster& cluster,
                                       const sim::Adjustment* adjustment) {
  if (!plan.stack.is_own()) return price_other(plan, cluster, adjustment);
  const auto played = sim::play_plan_within(most_events, plan, cluster);
  if (!played) return std::nullopt;
  return price_played(*played, plan, cluster);
}

std::vector<program::Violation> broken_rules(const program::Plan& plan) {
  std::vector<program::Violation> broken = program::check(plan);
  if (broken.empty()) broken = sim::software_violations(plan);
  return broken;
}

std::vector<program::Violation> refusals_of_stack(const program::Plan& plan, const Facts& told) {
  std::vector<program::Violation> refused;
  const std::optional<std::string> target = target_of(plan.stack.software);
  if (!target || *target == kOwnTarget) return refused;
  for (const Judgement& judgement : judge(rules_for(*target), plan, told))
    if (judgement.refuses())
      refused.push_back({.rule = fmt::format("{} {}, {}", *target, judgement.id, judgement.source),
                         .message = judgement.message});
  return refused;
}

TimedPlan timed(const RankedPlan& ranked, const sim::Cluster& cluster,
                const sim::Adjustment* adjustment) {
  if (ranked.simulated) return {ranked.plan, ranked.simulated->step, ranked.simulated->terms};
  PricedPlan priced = price(ranked.plan, cluster, adjustment);
  return static_cast<TimedPlan&&>(priced);
}

double told_apart_s(const TimedPlan& a, const TimedPlan& b) {
  constexpr double kNeverTold = 0.01;  // of a step
  return std::max(kNeverTold * std::min(a.step.step_time_s, b.step.step_time_s),
                  sim::indistinguishable_s(a.terms, b.terms));
}

}  // namespace meshplan::planner
