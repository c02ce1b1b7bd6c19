// Operations of one form are priced once: whatever a price depends on is a part of the form, or of
// the plans' keys.
#include "estimator/blocks/operation_forms.hpp"

#include <catch2/catch.hpp>
#include <map>

#include "program/checks/check.hpp"
#include "program/cost/cost.hpp"
#include "program/lower/lower.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/random_plans.hpp"
#include "support/cases.hpp"

namespace meshplan::sim {
namespace {

using program::Plan;
using program::RecomputeKind;

constexpr std::uint64_t kFormSeed = 20261126;

/// Plans that differ in what lies beside a layer's operations, not in their sizes.
std::vector<Plan> with_equal_layers(const Plan& plan) {
  std::vector<Plan> all;
  for (const RecomputeKind kind :
       {RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Full}) {
    all.push_back(plan);
    all.back().recompute = {.kind = kind};
  }
  all.push_back(plan);
  all.back().schedule = program::ScheduleKind::ZbH1;
  std::erase_if(all, [](const Plan& one) { return !program::check(one).empty(); });
  return all;
}

/// A random plan, on an H100 now and then in FP8.
RandomPlan random_plan_in(testing::Random& random) {
  RandomPlan one = random_plan(random);
  if (!one.cluster.name.starts_with("dgx-h100") || !one.cluster.other_nodes.empty()) return one;
  Plan in_fp8 = one.plan;
  program::set_precision(in_fp8.workload, program::Precision::Fp8);
  if (random.one_in(2) && program::check(in_fp8).empty()) one.plan = in_fp8;
  return one;
}

struct Priced {
  std::string signature;
  double flops = 0;
  std::int64_t bytes = 0;
  bool operator==(const Priced&) const = default;
};

}  // namespace

TEST_CASE("Operations of one form have one signature and cost", "[sim][estimator]") {
  const int kPlans = testing::random_cases(30);
  testing::Random random(kFormSeed);
  std::size_t found_again = 0;
  for (int i = 0; i < kPlans; ++i) {
    const Plan plan = random_plan_in(random).plan;
    OperationForms forms;
    std::map<std::pair<int, bool>, Priced> known;  // by form, and whether it accumulates
    for (const Plan& one : with_equal_layers(plan))
      for (const program::Program& program : program::lower_all(one)) {
        const OperationForms::Numbers numbers = forms.numbers_of(program);
        for (const program::OperationInstance& instance : program.instances) {
          const program::OperationRef& ref = instance.operation;
          if (!ref.block) continue;
          const int form = numbers[2 * static_cast<std::size_t>(*ref.block) +
                                   (ref.backward ? 1 : 0)][static_cast<std::size_t>(ref.index)];
          const program::OperationCost cost = program::operation_cost(program, instance);
          const Priced priced{program::signature(program, instance), cost.flops, cost.bytes};
          const auto [entry, fresh] = known.try_emplace({form, instance.accumulate}, priced);
          found_again += fresh ? 0 : 1;
          INFO(to_string(plan.parallel) << ": " << text_of(program, instance));
          REQUIRE(entry->second == priced);
        }
      }
  }
  CHECK(found_again > 0);
}

TEST_CASE("An estimator that has priced a plan's like prices it as one that has not",
          "[sim][estimator]") {
  const int kPlans = testing::random_cases(100);
  testing::Random random(kFormSeed);
  for (int i = 0; i < kPlans; ++i) {
    const RandomPlan one = random_plan_in(random);
    Estimator warm(one.cluster);
    for (const Plan& plan : with_equal_layers(one.plan)) {
      INFO(to_string(plan.parallel) << " on " << one.cluster.name);
      const StepPrediction found = warm.estimate(plan);
      const StepPrediction alone = Estimator(one.cluster).estimate(plan);
      CHECK(found.step_time_s == alone.step_time_s);
      CHECK(found.seconds == alone.seconds);
      CHECK(found.peak_memory_bytes == alone.peak_memory_bytes);
    }
  }
}

}  // namespace meshplan::sim
