#include "planner/explain/comparison.hpp"

#include <catch2/catch.hpp>

#include "planner/explain/plans.hpp"

namespace meshplan::planner {
namespace {}  // namespace

TEST_CASE("differences by part sum to the difference of two plans", "[planner][diff]") {
  const sim::Cluster cluster = h100s(16);
  program::Plan other = llama_on_two_nodes();
  other.micro_batch_size = 4;
  other.recompute.kind = program::RecomputeKind::Selective;
  const ComparedPlans compared =
      compare(price(llama_on_two_nodes(), cluster), price(other, cluster), true);
  double sum = 0;
  for (const sim::StepPart part : sim::all_step_parts())
    sum += compared.b.parts[part] - compared.a.parts[part];
  CHECK(sum == Approx(compared.slower_by_s));
  CHECK(compared.same_work);
  CHECK(compared.told_apart_s == told_apart_s(compared.a, compared.b));
  CHECK(compared.tokens_per_s_a == Approx(32 * 4096 / compared.a.step.step_time_s));
}

TEST_CASE("a plan ties with itself", "[planner][diff]") {
  const sim::Cluster cluster = h100s(16);
  const PricedPlan priced = price(llama_on_two_nodes(), cluster);
  const ComparedPlans compared = compare(priced, priced, true);
  CHECK(compared.slower_by_s == 0);
  CHECK(compared.ties());
}

TEST_CASE("plans that do different work are compared by the tokens of one", "[planner][diff]") {
  const sim::Cluster cluster = h100s(16);
  program::Plan twice = llama_on_two_nodes();
  twice.workload.global_batch_size *= 2;
  const ComparedPlans compared =
      compare(price(llama_on_two_nodes(), cluster), price(twice, cluster), true);
  CHECK_FALSE(compared.same_work);
  CHECK(compared.slower_by_s < 0);  // a smaller part of a longer step is bubble
  CHECK(compared.slower_by_s ==
        Approx(compared.b.step.step_time_s / 2 - compared.a.step.step_time_s));
}

TEST_CASE("on two clusters the errors of both add up", "[planner][diff]") {
  const sim::Cluster cluster = h100s(16);
  const PricedPlan priced = price(llama_on_two_nodes(), cluster);
  const ComparedPlans compared = compare(priced, priced, false);
  const double sigma = sim::relative_sigma_of(priced.terms, priced.step.step_time_s);
  CHECK(compared.told_apart_s ==
        Approx(sim::kDeviations80 * sigma * priced.step.step_time_s * std::sqrt(2.0)));
}

}  // namespace meshplan::planner
