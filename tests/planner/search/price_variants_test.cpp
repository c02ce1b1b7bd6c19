// Who is priced, where memory and bounds of step times are told by hand.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "fake_costs.hpp"
#include "search/evaluation.hpp"
#include "search/variants.hpp"

namespace meshplan::planner {
namespace {

using program::Plan;
using program::RecomputeKind;

CostModel costs_of(sim::StepPrediction (*estimate)(const Plan&)) {
  return {.estimator = [estimate]() -> CostModel::Estimate {
    return [estimate](const Plan& plan, const sim::Wanted&) { return estimate(plan); };
  }};
}

VariantResults variants_priced(const SearchRequest& request, const CostModel& costs) {
  const ParallelFor parallel_for = serial();
  Estimators estimators(costs, 1);
  const SearchContext context{request, parallel_for, estimators};
  const std::vector<Candidate> candidates =
      enumerate(request.model, request.workload,
                {request.cluster.num_ranks(), request.cluster.devices_per_node},
                request.constraints, request.space);
  return price_variants(context, evaluate_all(context, candidates, {}));
}

/// A sequence in flight keeps 1 GB. State takes 2 GB, which ZeRO 3 divides among 8 replicas; the
/// device has 2.5.
sim::StepPrediction state_of_two_gb(const Plan& plan) {
  sim::StepPrediction estimate;
  estimate.step_time_s = 1;
  estimate.state_bytes = plan.zero_stage == 3 ? 0.25e9 : 2e9;
  estimate.kept_bytes = 1e9 * plan.micro_batch_size;
  estimate.peak_memory_bytes = estimate.state_bytes + estimate.kept_bytes;
  estimate.capacity_bytes = 2.5e9;
  return estimate;
}

/// Plans with full recompute, by (tp, micro-batch size) as they are enumerated: the first takes
/// 10 s, each further one 1 s more. The 15th takes 24 s, but 18.5 with half of its layers, and is
/// known to take 18.45 at least; all other halves take a minute.
sim::StepPrediction half_of_the_last(const Plan& plan) {
  constexpr int kBefore[] = {0, 4, 9};  // tp 1, 2 and 4 have 4, 5 and 6 micro-batch sizes
  int place = kBefore[plan.parallel.tp / 2];
  for (int size = plan.micro_batch_size; size > 1; size /= 2) ++place;
  const bool last = place == 14;
  sim::StepPrediction estimate;
  estimate.step_time_s = !plan.recompute.num_layers ? 10 + place : last ? 18.5 : 60;
  estimate.busy.computing = (last ? 18.45 : 1) / (1 - kBoundSlack);
  estimate.capacity_bytes = 1;
  return estimate;
}

}  // namespace

TEST_CASE("What lacks memory for its state fits where ZeRO divides it", "[planner][search]") {
  SearchRequest request = small_request(16);
  request.space = without_variants();
  request.space.zero_in_pipelines = true;
  request.constraints.pp = 2;
  request.constraints.dp = 8;
  request.constraints.recompute = RecomputeKind::None;
  request.constraints.schedule = program::ScheduleKind::OneFOneB;
  request.constraints.at_most.micro_batch_size = 4;
  const VariantResults results = variants_priced(request, costs_of(state_of_two_gb));
  // 0.25 + 1 GB and 0.25 + 2 GB fit; 0.25 + 4 GB do not.
  std::vector<int> sizes;
  for (const Evaluation& evaluation : results.best) {
    CHECK(evaluation.candidate.zero_stage == 3);
    CHECK(evaluation.fits());
    sizes.push_back(evaluation.candidate.micro_batch_size);
  }
  std::ranges::sort(sizes);
  CHECK(sizes == std::vector<int>{1, 2});
}

TEST_CASE("A variant that comes in tenth is priced", "[planner][search]") {
  SearchRequest request = small_request(4);
  request.space = without_variants();
  request.space.recompute = {{.kind = RecomputeKind::Full}};
  request.space.recompute_parts = {0.5};
  request.constraints.pp = 1;
  request.constraints.sp = false;
  request.constraints.zero_stage = 0;
  const VariantResults results = variants_priced(request, costs_of(half_of_the_last));
  // Candidates take 10, 11, ... 18 s: nine are faster than 18.5, the tenth one is not.
  CHECK(results.counts.total == 15);
  CHECK(std::ranges::count(results.best, 18.5, [](const Evaluation& evaluation) {
          return evaluation.step().step_time_s;
        }) == 1);
}

TEST_CASE("Of equally fast plans the one that needs less memory is ranked first",
          "[planner][search]") {
  const auto of = [](double seconds, double bytes) {
    Evaluation evaluation;
    evaluation.estimate = {
        .step_time_s = seconds, .peak_memory_bytes = bytes, .capacity_bytes = 10};
    return evaluation;
  };
  CHECK(rank({of(2, 1), of(1, 9), of(1, 11), of(1, 3)}) == std::vector<std::size_t>{3, 1, 0});
}

}  // namespace meshplan::planner
