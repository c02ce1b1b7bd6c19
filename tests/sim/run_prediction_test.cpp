#include "sim/run_prediction.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "run_cases.hpp"

namespace meshplan::sim {
namespace {

RunPrediction predict(const TrainingRun& run) {
  return PreparedRun(run).predict(constants_of(fitted_constants()));
}

double total(const RunBreakdown& s) {
  return s.compute + s.tensor + s.host + s.pipeline + s.data_parallel + s.optimizer + s.overhead;
}

}  // namespace

TEST_CASE("The parts of a prediction sum to its step time", "[sim][prediction]") {
  TrainingRun run = small_gpt();
  CHECK(total(predict(run).seconds) == Approx(predict(run).step_time_s).epsilon(1e-6));
  run.parallel = {.tp = 2, .pp = 2, .dp = 2};
  CHECK(total(predict(run).seconds) == Approx(predict(run).step_time_s).epsilon(1e-6));
}

TEST_CASE("Twice the global batch is twice the work of a rank alone", "[sim][prediction]") {
  TrainingRun run = small_gpt(24);
  const RunPrediction one = predict(run);
  run.global_batch_size *= 2;
  const RunPrediction two = predict(run);
  CHECK(two.seconds.compute == Approx(2 * one.seconds.compute));
  CHECK(two.seconds.optimizer == Approx(one.seconds.optimizer));
}

TEST_CASE("Full recompute runs the forward once more", "[sim][prediction]") {
  TrainingRun run = small_gpt(24);
  const RunPrediction kept = predict(run);
  run.recompute = RunRecompute::Full;
  const RunPrediction recomputed = predict(run);
  CHECK(recomputed.seconds.compute > 1.2 * kept.seconds.compute);
  CHECK(recomputed.seconds.compute < 1.4 * kept.seconds.compute);
  CHECK(recomputed.memory.activations < 0.3 * kept.memory.activations);
}

TEST_CASE("A sharded optimizer holds its share", "[sim][prediction]") {
  TrainingRun run = small_gpt();
  run.parallel.dp = 8;
  const RunMemory whole = predict(run).memory;
  run.zero_stage = 1;
  const RunMemory sharded = predict(run).memory;
  CHECK(sharded.optimizer == Approx(whole.optimizer / 8));
  CHECK(sharded.parameters == whole.parameters);
}

// 175 B parameters: 2 + 4 + 12 bytes each on one rank of 80 GB.
TEST_CASE("Weights and optimizer state beyond the memory do not fit", "[sim][prediction]") {
  TrainingRun run = small_gpt(96);
  run.model.hidden_size = 12288;
  run.model.ffn_size = 4 * 12288;
  run.model.num_heads = run.model.num_kv_heads = 96;
  run.model.head_size = 128;
  run.micro_batch_size = 1;
  run.global_batch_size = 8;
  run.parallel.tp = 8;
  const RunMemory memory = predict(run).memory;
  CHECK(memory.parameters + memory.optimizer > memory.capacity);
  CHECK_FALSE(memory.fits());
}

TEST_CASE("An unknown stack or cluster is named with the nearest known one", "[sim][prediction]") {
  TrainingRun run = small_gpt();
  run.profile = "megatron-cor";
  CHECK_THROWS_WITH(PreparedRun(run), Catch::Contains("megatron-core"));
  run = small_gpt();
  run.cluster = "dgx-a10";
  CHECK_THROWS_WITH(PreparedRun(run), Catch::Contains("dgx-a100"));
}

TEST_CASE("A network named by its rate is a preset with another network", "[sim][cluster]") {
  const Cluster shared = load_cluster_preset("a100-80g-800g-node");
  CHECK(shared.fabric.back().ranks_per_link == 2);
  CHECK(shared.fabric.back().link_gb_per_s == Approx(0.96 * 200 / 8));
  const Cluster own = load_cluster_preset("a100-40g-generic-1600g-node");
  CHECK(own.fabric.back().ranks_per_link == 1);
  CHECK(own.device.memory_gib == Approx(39.4));
  CHECK_THROWS_AS(load_cluster_preset("a1000-1600g-node"), ConfigError);
}

}  // namespace meshplan::sim
