#include "sim/engine/step_parts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/error.hpp"
#include "engine/compute_classes.hpp"
#include "program/cost/cost.hpp"
#include "program/cost/model_flops.hpp"
#include "program/plan/mesh.hpp"
#include "sim/engine/breakdown.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

using program::Program;

/// What the operations of forward and backward take, each alone, without what is computed again.
struct ComputeWork {
  std::array<double, kNumComputeClasses> seconds{};
  std::array<double, kNumComputeClasses> flops{};
  double optimizer = 0;  // seconds of the update alone

  double seconds_of(ComputeClass of) const { return seconds[static_cast<std::size_t>(of)]; }
  double flops_of(ComputeClass of) const { return flops[static_cast<std::size_t>(of)]; }
};

/// Adds one stage's, divided by the number of stages: all of them have as many ranks.
void add_stage(const Program& program, const Cluster& cluster, double share, ComputeWork& work) {
  const program::Mesh mesh = program::mesh_of(program.plan);
  const ProgramPrices prices =
      price_program(program, mesh.rank_of({.pp = program.role.stage}), mesh, cluster);
  std::vector<std::optional<double>> flops_of(prices.distinct.size());
  const std::vector<double> times = times_run(program);
  for (std::size_t i = 0; i < program.instances.size(); ++i) {
    const program::OperationInstance& instance = program.instances[i];
    const program::Operation& operation = program::operation_of(program, instance);
    if (times[i] == 0 || operation.lane != program::Lane::Compute) continue;
    const double seconds = share * times[i] * prices.of(i).seconds;
    const Category category = category_of(operation.phase);
    if (category == Category::Optimizer) work.optimizer += seconds;
    if (category != Category::Forward && category != Category::Backward) continue;
    const auto of = static_cast<std::size_t>(compute_class(operation));
    work.seconds[of] += seconds;
    std::optional<double>& flops = flops_of[static_cast<std::size_t>(prices.of_instance[i])];
    if (!flops) flops = program::operation_cost(program, instance).flops;
    work.flops[of] += share * times[i] * *flops;
  }
}

}  // namespace

double StepParts::total() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

double ideal_seconds(const program::Plan& plan, const Cluster& cluster) {
  return program::model_flops_per_step(plan) /
         (plan.parallel.world_size() * peak_flop_per_s(cluster, plan.workload));
}

double step_effects(const Cluster& cluster, double step_time_s) {
  const double fixed = with_step_effects(cluster, 0);
  const double factor = with_step_effects(cluster, 1) - fixed;
  return step_time_s - (step_time_s - fixed) / factor;
}

StepParts parts_of(const PlayedPlan& played, const program::Plan& plan, const Cluster& cluster) {
  ComputeWork work;
  for (const Program& program : played.programs)
    add_stage(program, cluster, 1.0 / static_cast<double>(played.programs.size()), work);
  const double peak = peak_flop_per_s(cluster, plan.workload);
  const Breakdown mean = mean_of(played.result.breakdown);
  const auto below_peak = [&](ComputeClass of) {
    return work.seconds_of(of) - work.flops_of(of) / peak;
  };
  StepParts parts;
  parts[StepPart::Ideal] = ideal_seconds(plan, cluster);
  parts[StepPart::Beyond] =
      (work.flops_of(ComputeClass::Products) + work.flops_of(ComputeClass::Attention)) / peak -
      parts[StepPart::Ideal];
  parts[StepPart::Products] = below_peak(ComputeClass::Products);
  parts[StepPart::Attention] = below_peak(ComputeClass::Attention);
  parts[StepPart::Streams] = work.seconds_of(ComputeClass::Streams);
  const double computed = mean[Category::Forward] + mean[Category::Backward];
  const double alone = std::accumulate(work.seconds.begin(), work.seconds.end(), 0.0);
  constexpr double kRounding = 1e-12;  // of sums of the same terms in another order
  const double slowdown = std::abs(computed - alone) <= kRounding * alone ? 0.0 : computed - alone;
  parts[StepPart::Slowdown] = std::max(0.0, slowdown);
  parts[StepPart::Recompute] = mean[Category::Recompute];
  parts[StepPart::Tensor] = mean[Category::Tp] + mean[Category::Sp];
  parts[StepPart::Context] = mean[Category::Cp];
  parts[StepPart::Experts] = mean[Category::Ep];
  parts[StepPart::Sends] = mean[Category::Pp];
  parts[StepPart::Bubble] = mean[Category::Bubble];
  parts[StepPart::Data] = mean[Category::Dp];
  parts[StepPart::Optimizer] = plan.offload_optimizer
                                   ? std::min(work.optimizer, mean[Category::Optimizer])
                                   : mean[Category::Optimizer];
  // What is copied beside computation counts as the optimizer's.
  parts[StepPart::Offload] =
      mean[Category::Optimizer] - parts[StepPart::Optimizer] + std::min(0.0, slowdown);
  parts[StepPart::Host] = mean[Category::Host];
  parts[StepPart::Overhead] = step_effects(cluster, played.result.step_time_s);
  parts[StepPart::Waits] = mean[Category::Other] - parts[StepPart::Overhead];
  return parts;
}

std::string_view name_of(StepPart part) {
  switch (part) {
    case StepPart::Ideal:
      return "ideal";
    case StepPart::Beyond:
      return "beyond_model";
    case StepPart::Products:
      return "products";
    case StepPart::Attention:
      return "attention";
    case StepPart::Streams:
      return "streams";
    case StepPart::Slowdown:
      return "slowdown";
    case StepPart::Recompute:
      return "recompute";
    case StepPart::Tensor:
      return "tensor";
    case StepPart::Context:
      return "context";
    case StepPart::Experts:
      return "experts";
    case StepPart::Sends:
      return "sends";
    case StepPart::Bubble:
      return "bubble";
    case StepPart::Data:
      return "data";
    case StepPart::Optimizer:
      return "optimizer";
    case StepPart::Offload:
      return "offload";
    case StepPart::Host:
      return "host";
    case StepPart::Waits:
      return "waits";
    case StepPart::Overhead:
      return "overhead";
  }
  throw InvariantError("step part without a name");
}

}  // namespace meshplan::sim
