#include <catch2/catch.hpp>

#include "commands/run/slow_rank.hpp"
#include "models/model_spec.hpp"

using Catch::Matchers::Contains;

namespace meshplan::cli {
namespace {

ElasticLayout layout_of(const program::ParallelConfig& parallel, std::vector<int> layers,
                        double step_time_s) {
  ElasticLayout layout{.hosts = {{.name = "a", .slots = parallel.world_size(), .is_limit = true}},
                       .step_time_s = step_time_s};
  layout.plan.model = models::load_preset("tiny-llama");
  layout.plan.parallel = parallel;
  layout.plan.layers_per_stage = std::move(layers);
  return layout;
}

ElasticLayout running() {
  return layout_of({.pp = 2, .dp = 2}, {}, 1.0);
}
// Measured steps take twice as long as predicted ones.
constexpr double kMeasured = 2;
// Four seconds a step since the rank is slow, ten for a move.
constexpr RunAhead kLong{.steps = 100, .step_s = 4, .move_s = 10};

SlowRankWays ways(std::optional<ElasticLayout> less, std::optional<ElasticLayout> out,
                  const std::string& why_not_out = "") {
  const runtime::Nodes nodes({{.name = "a", .slots = 4, .is_limit = true}}, {});
  return {.slow = {.rank = 3, .times = 1.8, .host = "a", .slot = 3},
          .now_s = 2,
          .less_work = {.nodes = nodes, .layout = std::move(less), .why_not = ""},
          .left_out = {.nodes = nodes, .layout = std::move(out), .why_not = why_not_out}};
}

}  // namespace

TEST_CASE("The faster of two ways with a slow rank is taken", "[cli][elastic]") {
  const ElasticLayout moved = layout_of({.pp = 2, .dp = 2}, {3, 1}, 1.2);
  const ElasticLayout three = layout_of({.dp = 3}, {}, 1.5);
  const SlowRankWays both = ways(moved, three);
  const SlowRankDecision less = decide(both, running(), kLong, kMeasured);
  CHECK(less.taken == &both.less_work);
  // 100 steps of 4 s instead of 2 x 1.2 and 2 x 1.5 s.
  CHECK_THAT(less.text, Contains("rank 3 on a computes 1.80 x as long as its peers") &&
                            Contains("with 400.0 s left") &&
                            Contains("less work for it (pp2 dp2") && Contains("layers 3 1") &&
                            Contains("would save 160.0 s") && Contains("leaving it out (dp3") &&
                            Contains("would save 100.0 s") &&
                            Contains("a move takes about 10.0 s: gives it less work"));
  ElasticLayout quick = three;
  quick.step_time_s = 1.1;
  const SlowRankWays other = ways(moved, quick);
  const SlowRankDecision out = decide(other, running(), kLong, kMeasured);
  CHECK(out.taken == &other.left_out);
  CHECK_THAT(out.text, Contains("leaves it out after this step"));
}

TEST_CASE("A way that does not save a move is not taken", "[cli][elastic]") {
  const SlowRankWays both =
      ways(layout_of({.pp = 2, .dp = 2}, {3, 1}, 1.2), layout_of({.dp = 3}, {}, 2.5));
  const SlowRankDecision few =
      decide(both, running(), {.steps = 6, .step_s = 4, .move_s = 10}, kMeasured);
  CHECK(few.taken == nullptr);
  CHECK_THAT(few.text, Contains("would save 9.6 s") && Contains("would not be faster") &&
                           Contains("a move takes about 10.0 s: stays"));
  CHECK(decide(both, running(), {.steps = 7, .step_s = 4, .move_s = 10}, kMeasured).taken ==
        &both.less_work);
}

TEST_CASE("Ways that there are not are said", "[cli][elastic]") {
  const SlowRankWays none = ways(running(), std::nullopt, "3 of at least 4 ranks have room");
  const SlowRankDecision stays = decide(none, running(), kLong, kMeasured);
  CHECK(stays.taken == nullptr);
  CHECK_THAT(stays.text,
             Contains("less work for it has no faster plan") &&
                 Contains("leaving it out has no plan (3 of at least 4 ranks have room)"));
  const SlowRankWays forced =
      ways(layout_of({.pp = 2, .dp = 2}, {3, 1}, 1.2), std::nullopt, "no room");
  CHECK(decide(forced, running(), kLong, kMeasured).taken == &forced.less_work);
}

}  // namespace meshplan::cli
