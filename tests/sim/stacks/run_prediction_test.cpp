#include "sim/stacks/run_prediction.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "models/model_spec.hpp"
#include "sim/prices/operator_constants.hpp"
#include "sim/run_cases.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

double total(const RunBreakdown& s) {
  return s.compute + s.tensor + s.host + s.pipeline + s.data_parallel + s.optimizer + s.offload +
         s.overhead;
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

// n parameters take 2 gathers of 2 n and a scatter of 2 n bytes: over 64 ranks 63/64 of them pass a
// node's 12 GB/s; in a node 7/8 of them a rank's 240 GB/s, and 2 x 7/8 x 2 n the network's.
TEST_CASE("Sharding in a node only spares the network", "[sim][prediction]") {
  TrainingRun run = small_gpt(24);
  run.model.hidden_size = 4096;  // large enough for bandwidth to count alone
  run.model.ffn_size = 16384;
  run.model.head_size = 256;
  run.profile = "fms-fsdp-2024";
  run.cluster = "a100-80g-generic-100g-node";
  run.parallel.dp = 64;
  run.global_batch_size = 128;
  run.zero_stage = 3;
  run.settings.gradient_sum_dtype = program::StateDType::BF16;
  const RunPrediction everywhere = predict(run);
  run.shard_in_node = true;
  const RunPrediction in_node = predict(run);
  const double expected = (6 * 7.0 / 8 / 240 + 3.5 / 12) / (6 * 63.0 / 64 / 12);
  CHECK(in_node.seconds.data_parallel / everywhere.seconds.data_parallel ==
        Approx(expected).epsilon(0.03));
  CHECK(in_node.memory.optimizer == Approx(8 * everywhere.memory.optimizer));
}

// Stages keep their parameters for the step: they gather and scatter them once, not once a
// micro-batch.
TEST_CASE("A pipeline of sharded stages plays its schedule", "[sim][prediction]") {
  TrainingRun run = small_gpt(8);
  run.profile = "torchtitan";
  run.parallel = {.pp = 4, .dp = 2};
  run.zero_stage = 3;
  const RunPrediction sharded = predict(run);
  run.zero_stage = 1;
  const RunPrediction whole = predict(run);
  CHECK(sharded.seconds.pipeline == Approx(whole.seconds.pipeline));
  CHECK(sharded.seconds.data_parallel == Approx(whole.seconds.data_parallel));
  CHECK(sharded.seconds.pipeline > 0);
  CHECK(total(sharded.seconds) == Approx(sharded.step_time_s).epsilon(1e-6));
}

// tp 4 and pp 4 on nodes of eight: stages 0 and 1 share a node, 2 and 3 the other, so a message of
// s b h 2 bytes / 4 passes NVLink twice and the network once, and back; the last stage's message to
// the first crosses, too. The group's first pair alone would say NVLink for all.
TEST_CASE("A boundary between stages that crosses nodes is paid on the network",
          "[sim][prediction]") {
  TrainingRun run = small_gpt(4);
  run.model.hidden_size = 16384;
  run.model.head_size = 1024;
  run.profile = "megatron-core";
  run.parallel.tp = 4;
  run.parallel.pp = 4;
  run.parallel.sp = true;
  run.micro_batch_size = 16;
  run.global_batch_size = 16;
  run.settings.overlap_p2p = true;
  const double bytes = 16 * 1024 * 16384 * 2.0 / 4;
  const double nvlink = 240e9 * operator_constants().links_ampere, network = 0.96 * 25e9;
  const PreparedRun prepared(run);
  CHECK(prepared.exposed_sends(constants_of(fitted_constants())) ==
        Approx(2 * bytes * (2 / nvlink + 1 / network)).epsilon(0.03));
}

// Over 2 ranks an all-reduce of an activation passes twice over the link what gathering its parts
// does, and copies or adds as much of the rank's own. A last
// stage lacks the embedding's all-reduce and gathers what it receives: per micro-batch one gather
// less than a stage alone with as many layers.
TEST_CASE("A stage's receives count among its communication", "[sim][prediction]") {
  TrainingRun run = small_gpt(2);
  run.cluster = "h100-96g-hbm2e";  // whose collectives are formulas
  run.model.hidden_size = 16384;
  run.model.head_size = 1024;
  run.micro_batch_size = 16;
  run.global_batch_size = 32;
  run.profile = "megatron-2022";
  run.parallel = {.tp = 2};
  const double alone = predict(run).seconds.tensor;
  run.parallel.pp = 2;
  run.model.num_layers *= 2;
  const double gather = 268.4e6 / (370.8e9 * operator_constants().links_hopper);  // over the link
  CHECK(predict(run).seconds.tensor - alone == Approx(-2 * gather).epsilon(0.1));
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

// An allocator gives cached blocks back before an allocation fails: no run that fits shows more
// memory than its device has, however little of it is left.
TEST_CASE("A run that nearly fills its device caches less", "[sim][prediction]") {
  int roomy = 0, tight = 0;
  for (int sequences = 20; sequences <= 120; ++sequences) {
    TrainingRun run = small_gpt(24);
    run.micro_batch_size = sequences;
    run.global_batch_size = sequences;
    const RunMemory memory = predict(run).memory;
    if (!memory.fits()) continue;
    CAPTURE(sequences);
    CHECK(memory.visible <= Approx(memory.capacity));
    CHECK(memory.reserved >= memory.allocated());
    const bool full = memory.visible == Approx(memory.capacity);
    (full ? tight : roomy) += 1;
  }
  CHECK(roomy > 0);
  CHECK(tight > 0);
}

// The preset of H100s has tables of products forward and of causal attention; those backward, 2 of
// 3 products and 2.5 of 3.5 parts of attention's work, are formulas, and on a device without tables
// all.
TEST_CASE("A run says how much of its computing was timed near its shapes", "[sim][prediction]") {
  const auto timed = [](const char* cluster) {
    TrainingRun run = small_gpt();
    run.model = models::load_preset("llama3-8b");
    run.seq_len = 8192;
    run.micro_batch_size = 1;
    run.parallel.dp = 8;
    run.cluster = cluster;
    run.profile = "megatron-core";
    return PreparedRun(run).timed_shares(constants_of(fitted_constants()));
  };
  const TimedShares h100 = timed("dgx-h100");
  CHECK(h100.products == Approx(1.0 / 3).margin(0.03));
  CHECK(h100.attention == Approx(1 / 3.5).margin(0.05));
  const TimedShares other = timed("4x-rtx4090-pcie");
  CHECK(other.products == 0);
  CHECK(other.attention == 0);
}

}  // namespace meshplan::sim
