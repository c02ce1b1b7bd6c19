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

namespace {

/// Eight layers over pp stages of vpp chunks, and more micro-batches than stages.
TrainingRun piped(int pp, int vpp = 1) {
  TrainingRun run = small_gpt(8);
  run.profile = "megatron-core";
  run.cluster = "dgx-h100";
  run.parallel.pp = pp;
  run.parallel.vpp = vpp;
  run.global_batch_size = 32;
  return run;
}

TrainingRun laid_out(const char* layout, int pp, int vpp = 1) {
  TrainingRun run = piped(pp, vpp);
  run.layout = program::parse_pipeline_layout(layout);
  return run;
}

}  // namespace

TEST_CASE("The layout that goes without saying changes nothing", "[sim][work]") {
  CHECK(predict(laid_out("E(tt|)*3ttL", 4)) == predict(piped(4)));
  CHECK(predict(laid_out("E(t|)*7tL", 4, 2)) == predict(piped(4, 2)));
  CHECK(predict(laid_out("Et*8L", 1)) == predict(piped(1)));
}

// 1F1B holds four micro-batches of the first stage and one of the last.
TEST_CASE("A stage keeps what its own layers keep", "[sim][work]") {
  const auto activations = [](const char* layout, int stage) {
    return memory_of(laid_out(layout, 4), stage).activations;
  };
  const double layer = activations("Et|tt|ttt|ttL", 3) / 2;
  CHECK(activations("Et|tt|tt|tttL", 3) == Approx(3 * layer));
  CHECK(activations("Et|tt|ttt|ttL", 1) == Approx(3 * 2 * layer));
  CHECK(activations("Et|tt|ttt|ttL", 2) == Approx(2 * 3 * layer));
  CHECK(activations("E|t*4|t*4|L", 3) == 0);
  CHECK(activations("E|t*4|t*4|L", 2) == Approx(2 * 4 * layer));
}

TEST_CASE("The slowest stage is the one with most layers", "[sim][work]") {
  const double even = predict(laid_out("Et*4|t*4L", 2)).seconds.compute;
  const double uneven = predict(laid_out("Et*2|t*6L", 2)).seconds.compute;
  const double alone = predict(laid_out("E|t*8L", 2)).seconds.compute;
  CHECK(uneven > even);
  CHECK(alone - even == Approx(2 * (uneven - even)));  // four layers more, and two
}

// The module's words come from a copy of the embedding, whose gradients are summed with the first
// stage's: 1,024 x 1,024 parameters in a stage that has none, tied or not.
TEST_CASE("A prediction module brings a copy of the embedding along", "[sim][work]") {
  const auto parameters = [](const char* layout, int stage) {
    TrainingRun run = laid_out(layout, 4);
    run.model.mtp_layers = 1;
    return memory_of(run, stage).parameters / 2;
  };
  const double layers = parameters("Et|ttt|ttt|tmL", 1) / 3;
  const double head = parameters("Et|ttt|t*4|mL", 3);
  const double beside = parameters("Et|ttt|t*4m|L", 2);
  const double loss = parameters("Et|ttt|t*4m|L", 3);
  const double module = beside - 4 * layers - 1024.0 * 1024;
  CHECK(module > layers);  // its layer, two norms and a projection of twice the width
  CHECK(head == Approx(module + 1024.0 * 1024 + loss));
  CHECK(parameters("Et*7|t|m|L", 2) == Approx(module + 1024.0 * 1024));
}

// The first stages have work in hand for many micro-batches before they wait for the slow last one.
TEST_CASE("No pipeline of uneven stages ends before its slowest stage", "[sim][work]") {
  for (const char* layout : {"Et|t|t|t*5L", "Et*5|t|t|tL", "E|t*4|t*4|L", "Et*3|t|t*3|tL"})
    for (const int batch : {32, 256, 2048}) {
      TrainingRun run = laid_out(layout, 4);
      run.global_batch_size = batch;
      CHECK(predict(run).seconds.pipeline > 0);
    }
  for (const char* layout : {"E(t|)*6t|tL", "Ett|t|t|t|t|t|t|L", "Et|t|t|t|t|t|t|tL"})
    for (const int batch : {32, 256, 2048}) {
      TrainingRun run = laid_out(layout, 4, 2);
      run.global_batch_size = batch;
      CHECK(predict(run).seconds.pipeline > 0);
    }
}

// What is computed is the same; a bubble for each flush instead of one.
TEST_CASE("A pipeline that is flushed n times has n bubbles", "[sim][work]") {
  TrainingRun run = piped(4);  // 16 micro-batches
  run.cluster = "dgx-a100";
  const RunPrediction once = predict(run);
  run.flushes = 4;
  const RunPrediction often = predict(run);
  run.flushes = 1;
  run.global_batch_size /= 4;
  const RunPrediction part = predict(run);
  CHECK(often.seconds.pipeline == Approx(4 * part.seconds.pipeline));
  CHECK(often.seconds.compute == Approx(once.seconds.compute));
  CHECK(often.memory == part.memory);
}

}  // namespace meshplan::sim
