#include "planner/tune/rebalance.hpp"

#include <catch2/catch.hpp>

#include "planner/tune/tuned_world.hpp"

namespace meshplan::planner {
namespace {

program::Plan pipeline(int pp, std::vector<int> layers = {}) {
  program::Plan plan = predicted_to_take(1, 0).plan;
  plan.parallel.pp = pp;
  plan.layers_per_stage = std::move(layers);
  return plan;
}

program::Span span(int rank, double seconds, std::optional<int> layer,
                   program::Phase phase = program::Phase::Forward) {
  return {.rank = rank, .phase = phase, .layer = layer, .start_s = 1, .end_s = 1 + seconds};
}

}  // namespace

TEST_CASE("stages' times are told by layers and what belongs to none", "[planner][tune]") {
  program::Trace trace{.measured = true, .plan = pipeline(2), .world_size = 2};
  for (int layer = 0; layer < 6; ++layer) trace.spans.push_back(span(0, 0.5, layer));
  for (int layer = 6; layer < 12; ++layer) trace.spans.push_back(span(1, 1.0, layer));
  trace.spans.push_back(span(1, 3.0, std::nullopt));
  trace.spans.push_back(span(1, 9.0, std::nullopt, program::Phase::Optimizer));
  const std::vector<StageTime> times = stage_times(trace);
  REQUIRE(times.size() == 2);
  CHECK(times[0].layer_s == Approx(0.5));
  CHECK(times[0].fixed_s == 0);
  CHECK(times[1].layer_s == Approx(1));
  CHECK(times[1].fixed_s == Approx(3));
  CHECK(times[1].seconds() == Approx(9));
}

TEST_CASE("layers move so that the slowest stage takes least", "[planner][tune]") {
  // 12 layers of 1 s; the last stage has 4 s besides: 8 and 4 + 4.
  const auto head = rebalanced(pipeline(2), {{.layer_s = 1, .fixed_s = 0, .layers = 6},
                                             {.layer_s = 1, .fixed_s = 4, .layers = 6}});
  REQUIRE(head.has_value());
  CHECK(head->layers_per_stage == std::vector<int>{8, 4});
  // A stage on a core half as fast: 8 s and 4 * 2 s.
  const auto slow = rebalanced(pipeline(2), {{.layer_s = 1, .fixed_s = 0, .layers = 6},
                                             {.layer_s = 2, .fixed_s = 0, .layers = 6}});
  REQUIRE(slow.has_value());
  CHECK(slow->layers_per_stage == std::vector<int>{8, 4});
}

TEST_CASE("a pipeline in balance stays as it is", "[planner][tune]") {
  const StageTime even{.layer_s = 1, .fixed_s = 0, .layers = 6};
  CHECK_FALSE(rebalanced(pipeline(2), {even, even}).has_value());
  CHECK_FALSE(rebalanced(pipeline(1), {even}).has_value());
  // Already divided: 8 and 8.
  CHECK_FALSE(rebalanced(pipeline(2, {8, 4}), {{.layer_s = 1, .fixed_s = 0, .layers = 8},
                                               {.layer_s = 1, .fixed_s = 4, .layers = 4}})
                  .has_value());
}

TEST_CASE("every chunk keeps a layer, and all layers are divided", "[planner][tune]") {
  program::Plan plan = pipeline(2);
  plan.parallel.vpp = 2;
  plan.schedule = program::ScheduleKind::Interleaved;
  const auto moved = rebalanced(plan, {{.layer_s = 1, .fixed_s = 0, .layers = 6},
                                       {.layer_s = 1, .fixed_s = 50, .layers = 6}});
  REQUIRE(moved.has_value());
  CHECK(moved->layers_per_stage == std::vector<int>{5, 1, 5, 1});
}

}  // namespace meshplan::planner
