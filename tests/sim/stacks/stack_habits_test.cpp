// What stacks do with gradients and parameters that no row of a table may show: from their sources,
// see the reasons in sim/profiles.
#include <catch2/catch.hpp>

#include "sim/prices/operator_constants.hpp"
#include "sim/run_cases.hpp"
#include "sim/stacks/run_prediction.hpp"

namespace meshplan::sim {
namespace {

const Constants& constants() {
  static const Constants fitted = constants_of(fitted_constants());
  return fitted;
}

/// 4.8 B parameters, large enough for bandwidth to count alone, over 64 devices of 8 a node.
TrainingRun large_sharded(const char* profile) {
  TrainingRun run = small_gpt(24);
  run.model.hidden_size = 4096;
  run.model.ffn_size = 16384;
  run.model.head_size = 256;
  run.profile = profile;
  run.cluster = "a100-80g-generic-400g-node";
  run.parallel.dp = 64;
  run.global_batch_size = 128;
  run.zero_stage = 3;
  return run;
}

double data_parallel(TrainingRun run, int microbatches) {
  run.global_batch_size = std::int64_t{run.micro_batch_size} * run.parallel.dp * microbatches;
  return predict(run).seconds.data_parallel;
}

}  // namespace

// Per parameter two gathers of 2 bytes a micro-batch and one scatter of 4: over four of them
// (4 x 4 + 4) / (4 + 4) if it is put off, else four times one.
TEST_CASE("Gradients that stay whole are summed once a step", "[sim][prediction]") {
  const TrainingRun deferred = large_sharded("nemo-automodel");
  CHECK(data_parallel(deferred, 4) / data_parallel(deferred, 1) == Approx(2.5).epsilon(0.02));
  const TrainingRun each = large_sharded("torchtitan");
  CHECK(data_parallel(each, 4) / data_parallel(each, 1) == Approx(4));
}

// 24 layers of 12 x 4096^2 and 2 x 1024 x 4096: 4.84 B parameters, kept whole in 4 bytes.
TEST_CASE("Gradients that stay whole are held whole", "[sim][prediction]") {
  TrainingRun run = large_sharded("nemo-automodel");
  run.global_batch_size = 4 * 128;
  const double whole = predict(run).memory.gradients;
  run.global_batch_size = 128;
  const double shards = predict(run).memory.gradients;
  CHECK(whole - shards == Approx(4 * 4.84e9).epsilon(0.01));
  CHECK(shards == Approx(2 * 4.84e9 / 64).epsilon(0.01));
}

// 28 layers of 604 M parameters each take 68 GB in 4 bytes beside activations: they are not kept.
TEST_CASE("Gradients that do not fit whole are summed after each micro-batch",
          "[sim][prediction]") {
  TrainingRun run = large_sharded("nemo-automodel");
  run.model.num_layers = 120;
  run.recompute = RunRecompute::Full;
  CHECK(predict(run).memory.fits());
  CHECK(data_parallel(run, 4) / data_parallel(run, 1) == Approx(4).epsilon(0.01));
}

// Two units of 12 x 4096^2 parameters are gathered at once: in FP8 (FSDP2 with float8 all-gather)
// in a byte each instead of two.
TEST_CASE("Parameters that travel in FP8 lie gathered in FP8", "[sim][prediction]") {
  TrainingRun run = large_sharded("torchtitan");
  run.cluster = "dgx-h100";
  const double half = predict(run).memory.transient;
  run.precision = RunPrecision::Fp8;
  CHECK(half - predict(run).memory.transient == Approx(2 * 12 * 4096.0 * 4096).epsilon(0.001));
  run.precision = RunPrecision::Fp8Block;
  CHECK(predict(run).memory.transient == half);
}

// Stage 2: one gather of 2 bytes and one scatter of 2 per micro-batch.
TEST_CASE("Sharded gradients are summed after each micro-batch", "[sim][prediction]") {
  TrainingRun run = large_sharded("fms-fsdp-2024");
  run.zero_stage = 2;
  CHECK(data_parallel(run, 3) / data_parallel(run, 1) == Approx(3));
  run.zero_stage = 1;
  CHECK(data_parallel(run, 3) / data_parallel(run, 1) == Approx(1));
}

// 24 equal layers and their ends without time of their own, all hidden: of two gathers and a
// scatter a layer a part e is paid, but for what has nothing beside it, the first layer's gather
// and last scatter. Copies of 2 + 2 bytes a gather and 2 + 4 a scatter take as long as streams of
// them.
TEST_CASE("Sharded layers wait for their first gather, last sum, and copies", "[sim][prediction]") {
  TrainingRun run = large_sharded("torchtitan");
  run.cluster = "selene-a100";
  run.model.vocab_size = 128;  // ends too small to count
  run.settings.overlap_dp = false;
  run.micro_batch_size = 8;
  run.global_batch_size = 8 * 64;
  const double n = 24 * 12 * 4096.0 * 4096;
  const double paid_whole = predict(run).seconds.data_parallel;
  const double copies = (2 * 4 + 6) * n / (constants().memory * 2.039e12);
  run.settings.overlap_dp = true;
  const double e = constants().dp_exposed;
  const double communication = paid_whole - copies;  // 2 + 2 + 4 bytes: a quarter a gather
  const double alone = (0.25 + 0.5) / 24;
  CHECK(predict(run).seconds.data_parallel ==
        Approx(copies + communication * (alone + e * (1 - alone))).epsilon(0.02));
}

// Over a network so slow that every window is too short, all communication is waited for but what
// passes beside the layers' compute, launches and copies: of that 16 of the 108 SMs. Its rate, a
// fiftieth of NVLink's, leaves the memory's bandwidth alone.
TEST_CASE("What exceeds the window of the layer before is exposed", "[sim][prediction]") {
  TrainingRun run = large_sharded("torchtitan");
  run.cluster = "a100-80g-generic-40g-node";
  run.settings.overlap_dp = false;
  const RunPrediction apart = predict(run);
  run.settings.overlap_dp = true;
  const RunPrediction beside = predict(run);
  const double e = 16.0 / 108 + (constants().dp_exposed - 16.0 / 108) / 50;
  const double copies = (2 * 4 + 6) * 24 * 12 * 4096.0 * 4096 / (constants().memory * 2.039e12);
  const double window = beside.seconds.compute + beside.seconds.host + copies;
  CHECK(apart.seconds.data_parallel - beside.seconds.data_parallel ==
        Approx((1 - e) * window).epsilon(0.03));
}

// Two gathers and a scatter: 2 + 2 + 4 bytes a parameter, or 2 + 2 + 2.
TEST_CASE("What is summed in bf16 takes half the bytes", "[sim][prediction]") {
  const double fp32 = data_parallel(large_sharded("torchtitan"), 1);
  CHECK(data_parallel(large_sharded("fms-fsdp-2024"), 1) / fp32 == Approx(0.75).epsilon(0.03));
  TrainingRun run = large_sharded("torchtitan");
  run.settings.gradient_sum_dtype = program::StateDType::BF16;
  CHECK(data_parallel(run, 1) / fp32 == Approx(0.75).epsilon(0.02));
}

// Megatron's gradients in 2 bytes, scattered, and parameters gathered in 2: 4 or, in fp32, 6.
TEST_CASE("Gradients in fp32 are kept and sent in fp32", "[sim][prediction]") {
  TrainingRun run = large_sharded("megatron-core");
  run.zero_stage = 1;
  const RunPrediction half = predict(run);
  run.settings.gradient_dtype = program::StateDType::F32;
  const RunPrediction single = predict(run);
  CHECK(single.memory.gradients == Approx(2 * half.memory.gradients));
  CHECK(single.seconds.data_parallel / half.seconds.data_parallel == Approx(1.5).epsilon(0.01));
}

// Fused: gradient 4 for the norm and 4 zeroed, 4 + 24 + 2 updated. Apart: 13 accesses of 4 more.
TEST_CASE("An optimizer in kernels of its own reads and writes its state more often",
          "[sim][prediction]") {
  const double fused = predict(large_sharded("torchtitan")).seconds.optimizer;
  const double apart = predict(large_sharded("fms-fsdp-2024")).seconds.optimizer;
  CHECK(apart / fused == Approx(90.0 / 38).epsilon(0.01));
}

// Scatter s of 4 bytes and gather s / 2 of 2, both beside much more compute: s is paid whole where
// a stage has one chunk, its half where it has two; of the rest a part is: 16 of 108 SMs, and
// memory bandwidth at 0.24 of what NVLink takes (0.96 x 50 of 199 GB/s).
TEST_CASE("Sharded stages sum their gradients after the last backward of a chunk",
          "[sim][prediction]") {
  TrainingRun run = large_sharded("torchtitan");
  run.parallel = {.pp = 2, .dp = 32};
  run.micro_batch_size = 8;
  run.global_batch_size = 32 * 8 * 4;
  run.settings.overlap_dp = true;
  const double one = predict(run).seconds.data_parallel;
  run.parallel.vpp = 2;
  const double two = predict(run).seconds.data_parallel;
  const double e = 16.0 / 108 + 0.24 * (constants().dp_exposed - 16.0 / 108);
  CHECK(two / one == Approx((0.5 + e * 0.5 + e * 0.5) / (1 + e * 0.5)).epsilon(0.02));
}

// Beside all that a layer computes in both passes, not only its products: a part e is paid.
TEST_CASE("An exchange of experts hides under all independent compute", "[sim][prediction]") {
  TrainingRun run = large_sharded("megatron-core");
  run.zero_stage = 1;
  run.model.moe = models::MoeSpec{.num_experts = 8, .top_k = 2, .expert_ffn_size = 16384};
  run.parallel.dp = run.parallel.ep = 8;
  run.global_batch_size = 8 * 2 * 4;
  const RunPrediction apart = predict(run);
  run.settings.overlap_ep = true;
  const RunPrediction beside = predict(run);
  REQUIRE(apart.seconds.experts < apart.seconds.compute);
  CHECK(beside.seconds.experts == Approx(constants().dp_exposed * apart.seconds.experts));
  CHECK(beside.step_time_s < apart.step_time_s);
}

TEST_CASE("Sequence parallelism that a run leaves open is the stack's", "[sim][prediction]") {
  TrainingRun run = small_gpt();
  run.profile = "megatron-core";
  run.parallel = {.tp = 2};
  run.sp_stated = false;
  CHECK(PreparedRun(run).run().parallel.sp);
  run.profile = "megatron-2022";
  CHECK_FALSE(PreparedRun(run).run().parallel.sp);
}

TEST_CASE("A stage of sharding that a run leaves open is the stack's", "[sim][prediction]") {
  TrainingRun run = small_gpt();
  run.zero_stage = -1;
  const auto stage = [&](const char* profile) {
    run.profile = profile;
    return PreparedRun(run).run().zero_stage;
  };
  CHECK(stage("torchtitan") == 3);
  CHECK(stage("jax-xla") == 3);
  CHECK(stage("megatron-core") == 1);
  CHECK(stage("megatron-2022") == 0);
}

// A product's accumulation moves 10 bytes a weight; a step of one micro-batch has nothing to add.
TEST_CASE("XLA adds up gradients of several micro-batches only", "[sim][prediction]") {
  TrainingRun run = small_gpt(24);
  run.profile = "jax-xla";
  run.global_batch_size = run.micro_batch_size;
  const double one = predict(run).seconds.products;
  run.global_batch_size *= 2;
  CHECK(predict(run).seconds.products > 2.05 * one);
}

// FlashAttention-2 reaches 0.48 of the third generation's rate (FlashAttention-3, section 4.1).
TEST_CASE("torchtitan leaves attention to cuDNN on Blackwell", "[sim][prediction]") {
  const auto over_third = [](const char* cluster) {
    TrainingRun run = small_gpt(4);
    run.seq_len = run.model.max_positions = 8192;
    run.cluster = cluster;
    run.profile = "torchtitan";
    const double own = predict(run).seconds.attention;
    run.profile = "megatron-core";  // cuDNN everywhere
    return own / predict(run).seconds.attention;
  };
  CHECK(over_third("dgx-b200") == Approx(1));
  CHECK(over_third("dgx-h100") > 1.2);
}

// Two ranks: keys and values of the other pass what collectives reach of 370.8 GB/s once, forward,
// and their gradients once, back; a rank copies or adds to as many of its own.
TEST_CASE("Keys and values are gathered before attention where the stack does so",
          "[sim][prediction]") {
  TrainingRun run = small_gpt(4);
  run.cluster = "h100-96g-hbm2e";  // whose collectives are formulas
  run.seq_len = run.model.max_positions = 65536;
  run.global_batch_size = run.micro_batch_size;
  run.parallel = {.cp = 2};
  const double kv = 2.0 * 65536 * 1024 / 2 * 2 * 2;  // keys and values of a rank, in 2 bytes
  const auto exchanged = [&](const char* profile) {
    run.profile = profile;
    return predict(run).seconds.tensor;
  };
  const OperatorConstants& measured = operator_constants();
  const double once = kv * (1 + measured.own_part) / (370.8e9 * measured.links_hopper);
  CHECK(exchanged("jax-xla") == Approx(4 * 2 * once).epsilon(0.03));
  CHECK(exchanged("torchtitan") == 0);                  // beside half of attention
  run.context_parallel = program::ContextMethod::Ring;  // hidden by attention over 65,536 tokens
  CHECK(exchanged("jax-xla") == 0);
}

// Two gathers of 1 byte and a scatter of 4, or of 2 and 4: 6 to 8.
TEST_CASE("Parameters travel in FP8 where a tensor has one scale", "[sim][prediction]") {
  TrainingRun run = large_sharded("torchtitan");
  const double half = data_parallel(run, 1);
  run.precision = RunPrecision::Fp8;
  CHECK(data_parallel(run, 1) / half == Approx(0.75).epsilon(0.02));
  run.precision = RunPrecision::MxFp8;
  CHECK(data_parallel(run, 1) == Approx(half));
}

// A distributed optimizer without overlap: 4 bytes a parameter are scattered and 2, or 1, gathered.
// The rate of the network cancels.
TEST_CASE("A distributed optimizer hands out parameters in FP8", "[sim][prediction]") {
  TrainingRun run = large_sharded("megatron-core-no-overlap");
  run.cluster = "dgx-h100";
  run.zero_stage = 1;
  run.settings.overlap_dp = false;
  const auto seconds = [&](RunPrecision precision) {
    run.precision = precision;
    return data_parallel(run, 1);
  };
  const double half = seconds(RunPrecision::Bf16);
  CHECK(seconds(RunPrecision::Fp8) / half == Approx(5.0 / 6).epsilon(0.01));
  CHECK(seconds(RunPrecision::MxFp8) == Approx(half));
}

// At hidden size 1024 a layer multiplies 12 x 1024^2 per token; a prediction module does that, its
// projection 2 and, with a vocabulary of 8 x 1024, the head 8.
TEST_CASE("A multi-token prediction module is a layer, a projection and logits",
          "[sim][prediction]") {
  TrainingRun run = small_gpt(4);
  run.model.vocab_size = 8192;
  run.micro_batch_size = 16;
  const RunPrediction four = predict(run);
  run.model.mtp_layers = 1;
  const RunPrediction module = predict(run);
  run.model.mtp_layers = 0;
  run.model.num_layers = 5;
  const RunPrediction five = predict(run);
  CHECK((module.seconds.products - four.seconds.products) /
            (five.seconds.products - four.seconds.products) ==
        Approx(22.0 / 12).epsilon(0.05));
  CHECK((module.memory.parameters - four.memory.parameters) /
            (five.memory.parameters - four.memory.parameters) ==
        Approx(14.0 / 12).epsilon(0.01));
}

// fms-fsdp: p = 1/2 of the blocks, evenly spaced (policies/ac_handler.py).
TEST_CASE("Selective recompute is of every second layer where a stack knows no other",
          "[sim][prediction]") {
  TrainingRun run = large_sharded("fms-fsdp-2024");
  const auto activations = [&](RunRecompute recompute) {
    run.recompute = recompute;
    return predict(run).memory.activations;
  };
  CHECK(activations(RunRecompute::CoreAttention) == activations(RunRecompute::EverySecondLayer));
  run.profile = "nemo-automodel";
  CHECK(activations(RunRecompute::CoreAttention) == activations(RunRecompute::None));
}

}  // namespace meshplan::sim
