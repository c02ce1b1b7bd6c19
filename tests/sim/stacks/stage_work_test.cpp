#include "stacks/stage_work.hpp"

#include <catch2/catch.hpp>

#include "sim/run_cases.hpp"

namespace meshplan::sim {

// Layers of 1 and a head of 2.45 (50,257 x 2048 over 4 x 2048^2 + 3 x 4096 x 2048): 26.45 in all.
// 8 stages end past multiples of 3.31: after layers 4, 7, 10, 14, 17, 20 and 24; 4 stages past
// 6.61, 13.2 and 19.8: after 7, 14 and 20; 2 stages past 13.2: after 14.
TEST_CASE("Stages cut by cost end where their share is exceeded", "[sim][work]") {
  const double head = 50257.0 * 2048 / (4.0 * 2048 * 2048 + 3.0 * 4096 * 2048);
  CHECK(balanced_layers(24, head, 8) == std::vector<int>{4, 3, 3, 4, 3, 3, 4, 0});
  CHECK(balanced_layers(24, head, 4) == std::vector<int>{7, 7, 6, 4});
  CHECK(balanced_layers(24, head, 2) == std::vector<int>{14, 10});
  CHECK(balanced_layers(24, head, 1) == std::vector<int>{24});
}

// Two micro-batches in flight on the first of two stages, 3 layers of 4 instead of 2: a head as
// large as a layer (12 x 1024^2 parameters) makes shares of 2.5.
TEST_CASE("A stack that cuts by cost holds more layers on its first stage", "[sim][work]") {
  TrainingRun run = small_gpt(4);
  run.model.vocab_size = 12 * 1024;
  run.parallel.pp = 2;
  ExecutionProfile profile = load_execution_profile("meshplan");
  profile.balances_stages = true;
  const StageWork even = stage_work(run, models::build_graph(run.model), profile, StageCut::Even);
  const StageWork cut = stage_work(run, models::build_graph(run.model), profile, StageCut::ByCost);
  CHECK(even.stages[0][0].layers.front().count == 2);
  CHECK(cut.stages[0][0].layers.front().count == 3);
  CHECK(cut.stages[1][0].layers.front().count == 1);
  profile.balances_stages = false;
  const StageWork other =
      stage_work(run, models::build_graph(run.model), profile, StageCut::ByCost);
  CHECK(other.stages[0][0].layers.front().count == 2);
}

// Two gathered inputs of a layer, T D elements of 2 bytes each, of which 1/tp would be kept anyway.
TEST_CASE("Gathered inputs that are kept are saved whole and not gathered again", "[sim][work]") {
  TrainingRun run = small_gpt();
  run.parallel.tp = 4;
  run.parallel.sp = true;
  ExecutionProfile profile = load_execution_profile("meshplan");
  const models::ModelGraph graph = models::build_graph(run.model);
  const LayerWork again = layer_work(graph.kinds.front(), run, profile, false);
  profile.keeps_gathered_inputs = true;
  const LayerWork kept = layer_work(graph.kinds.front(), run, profile, false);
  const double whole = 2 * 1024 * 1024 * 2.0;
  CHECK(kept.saved_bytes - again.saved_bytes == Approx(2 * whole * 3 / 4));
  CHECK(again.backward.size() - kept.backward.size() == 2);
}

}  // namespace meshplan::sim
