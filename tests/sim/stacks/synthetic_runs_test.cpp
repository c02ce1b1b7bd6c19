// Runs that nobody measured, on every stack, model and machine that a table may name: what must
// hold between two of them that differ in one thing.
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <functional>

#include "sim/run_cases.hpp"
#include "sim/stacks/execution_profile.hpp"
#include "sim/stacks/run_prediction.hpp"

namespace meshplan::sim {
namespace {

using Change = std::function<void(TrainingRun&)>;

constexpr double kSame = 1 + 1e-9;

const std::vector<std::string> kStacks{"deepspeed",
                                       "fms-fsdp-2024",
                                       "jax-xla",
                                       "llm-foundry-2023",
                                       "megatron-2022",
                                       "megatron-core",
                                       "megatron-core-no-overlap",
                                       "megatron-deepspeed-2022",
                                       "nanotron",
                                       "nemo-automodel",
                                       "torchtitan"};
const std::vector<std::string> kFullySharded{"fms-fsdp-2024", "jax-xla", "llm-foundry-2023",
                                             "nemo-automodel", "torchtitan"};

bool shards_fully(const std::string& stack) {
  return std::ranges::find(kFullySharded, stack) != kFullySharded.end();
}

/// Llama 2 of 7 or 70 B parameters, sequences of 4,096 on 64 devices, sharded as the stack does.
TrainingRun llama(const std::string& stack, bool large = false) {
  TrainingRun run;
  run.model.name = "llama";
  run.model.num_layers = large ? 80 : 32;
  run.model.hidden_size = large ? 8192 : 4096;
  run.model.ffn_size = large ? 28672 : 11008;
  run.model.num_heads = large ? 64 : 32;
  run.model.num_kv_heads = large ? 8 : 32;
  run.model.head_size = 128;
  run.model.vocab_size = 32000;
  run.model.max_positions = 131072;
  run.seq_len = 4096;
  run.micro_batch_size = 1;
  run.profile = stack;
  run.cluster = "dgx-h100";
  run.settings.overlap_dp = true;
  run.zero_stage = 3;
  run.parallel.dp = 64;
  if (!shards_fully(stack)) {
    run.zero_stage = 1;
    run.settings.overlap_tp = run.settings.overlap_p2p = true;
    if (large) run.parallel = {.tp = 8, .pp = 4, .dp = 2, .sp = true};
  }
  run.global_batch_size = 4 * run.parallel.dp;
  return run;
}

/// Mixtral of 8 x 7 B parameters, an expert a rank of a node.
TrainingRun mixtral(const std::string& stack) {
  TrainingRun run = llama(stack);
  run.model.num_kv_heads = 8;
  run.model.moe = models::MoeSpec{.num_experts = 8, .top_k = 2, .expert_ffn_size = 14336};
  run.model.ffn_size = 0;
  run.parallel.ep = 8;
  return run;
}

double mfu(const TrainingRun& run, double step_time_s, double peak) {
  const auto& m = run.model;
  const double hidden = static_cast<double>(m.hidden_size), ffn = static_cast<double>(m.ffn_size);
  const double attention = 2.0 * m.head_size * (m.num_heads + m.num_kv_heads) * hidden;
  const double head = static_cast<double>(m.vocab_size) * hidden;
  const double matrices = m.num_layers * (attention + 3 * ffn * hidden) + head;
  const double sequence = static_cast<double>(run.seq_len);
  const double scores = 6.0 * m.num_layers * m.num_heads * m.head_size * sequence;  // causal
  const double tokens = static_cast<double>(run.global_batch_size) * sequence;
  return (6 * matrices + scores) * tokens / step_time_s / run.parallel.world_size() / peak;
}

/// Step time after over before.
double slower_by(TrainingRun run, const Change& change) {
  const double before = predict(run).step_time_s;
  change(run);
  return predict(run).step_time_s / before;
}

void with_microbatches(TrainingRun& run, int n) {
  run.global_batch_size = std::int64_t{run.micro_batch_size} * run.parallel.dp * n;
}

}  // namespace

TEST_CASE("Large models keep devices about as busy as devices can be", "[sim][synthetic]") {
  const std::vector<std::pair<std::string, double>> peaks{{"a100-80g-generic-1600g-node", 312e12},
                                                          {"selene-a100", 312e12},
                                                          {"dgx-h100", 989e12},
                                                          {"h100-p5", 989e12},
                                                          {"h200-generic", 989e12},
                                                          {"dgx-b200", 2250e12}};
  for (const std::string& stack : kStacks)
    for (const auto& [cluster, peak] : peaks)
      for (const bool large : {false, true}) {
        TrainingRun run = llama(stack, large);
        run.cluster = cluster;
        run.micro_batch_size = shards_fully(stack) ? 2 : 1;
        run.recompute = large ? RunRecompute::Full : RunRecompute::None;
        with_microbatches(run, 16);
        CAPTURE(stack, cluster, large);
        const double newest = mfu(run, predict(run).step_time_s, peak);
        run.undated = true;
        const double busy = mfu(run, predict(run).step_time_s, peak);
        CHECK(busy > 0.14);  // the lowest: tp 8 in step with products, on Blackwell
        CHECK(busy < 0.70);
        CHECK(newest > 0.9 * busy);  // the most is lost by gathering again in backward
        CHECK(newest < 0.70);
      }
}

TEST_CASE("A faster network is never slower", "[sim][synthetic]") {
  for (const std::string& stack : kStacks)
    for (const int stage : {0, 1, 2, 3, 4}) {
      TrainingRun run = llama(stack);
      run.zero_stage = std::min(stage, 3);
      run.shard_in_node = stage == 4;
      double before = INFINITY;
      for (const int gbps : {200, 400, 800, 1600, 3200}) {
        run.cluster = fmt::format("a100-80g-generic-{}g-node", gbps);
        const double step = predict(run).step_time_s;
        CAPTURE(stack, stage, gbps);
        CHECK(step <= before * kSame);
        before = step;
      }
    }
}

TEST_CASE("More micro-batches take longer, but less each", "[sim][synthetic]") {
  for (const std::string& stack : kStacks)
    for (const bool large : {false, true})
      for (int n = 4; n <= 32; n *= 2) {
        TrainingRun run = llama(stack, large);
        with_microbatches(run, n);
        const double ratio = slower_by(run, [&](auto& r) { with_microbatches(r, 2 * n); });
        CAPTURE(stack, large, n);
        CHECK(ratio > 1.3);
        CHECK(ratio <= 2 * kSame);
      }
}

TEST_CASE("The same work on more devices is not done sooner", "[sim][synthetic]") {
  for (const std::string& stack : kStacks)
    for (const char* cluster : {"dgx-h100", "a100-80g-generic-400g-node"}) {
      double before = 0;
      for (const int dp : {8, 16, 64, 256}) {
        TrainingRun run = llama(stack);
        run.cluster = cluster;
        run.parallel.dp = dp;
        with_microbatches(run, 2);
        const RunPrediction own = predict(run);
        const double step = own.step_time_s - own.seconds.optimizer;  // that one shrinks
        CAPTURE(stack, cluster, dp);
        CHECK(step >= before);
        before = step;
      }
    }
}

// Forward is a third of the work and runs again, where a stack stops early but for its last
// product; kept layers are proportional.
TEST_CASE("Recompute costs time and saves memory", "[sim][synthetic]") {
  for (const std::string& stack : kStacks) {
    TrainingRun run = llama(stack);
    const RunPrediction none = predict(run);
    run.recompute = RunRecompute::Full;
    const RunPrediction full = predict(run);
    run.recompute = RunRecompute::EverySecondLayer;
    const RunPrediction half = predict(run);
    run.recompute = RunRecompute::Full;
    run.recompute_layers = 16;
    const RunPrediction sixteen = predict(run);
    run.recompute = RunRecompute::PerOp;
    run.recompute_layers = std::nullopt;
    const RunPrediction per_op = predict(run);
    CAPTURE(stack);
    const double compute = full.seconds.compute / none.seconds.compute;
    CHECK(compute > 1.2);
    CHECK(compute < 1.35);
    CHECK(half.seconds.compute == Approx((none.seconds.compute + full.seconds.compute) / 2));
    CHECK(half.seconds.compute == Approx(sixteen.seconds.compute));
    CHECK(full.memory.activations < half.memory.activations);
    CHECK(half.memory.activations < none.memory.activations);
    CHECK(per_op.memory.activations < none.memory.activations);
    CHECK(per_op.step_time_s > none.step_time_s);
    CHECK(per_op.step_time_s < full.step_time_s);
  }
}

TEST_CASE("Switches change a run in the direction that they are for", "[sim][synthetic]") {
  for (const std::string& stack : kStacks)
    for (const bool large : {false, true}) {
      const TrainingRun run = llama(stack, large);
      CAPTURE(stack, large);
      const auto ratio = [&](const Change& change) { return slower_by(run, change); };
      CHECK(ratio([](auto& r) { r.settings.compile = program::CompiledPart::None; }) >= 1 / kSame);
      CHECK(ratio([](auto& r) { r.settings.cuda_graphs = program::CudaGraphs::Full; }) <= kSame);
      CHECK(ratio([](auto& r) { r.settings.gradient_sum_dtype = program::StateDType::BF16; }) <=
            kSame);
      CHECK(ratio([](auto& r) { r.settings.gradient_dtype = program::StateDType::F32; }) >=
            1 / kSame);
      CHECK(ratio([](auto& r) { r.settings.dropout = 0.1; }) >= 1 / kSame);
      CHECK(ratio([](auto& r) { r.settings.overlap_dp = false; }) >= 1 / kSame);
      CHECK(ratio([](auto& r) { r.attention = AttentionKernel::Unfused; }) > 1);
      CHECK(ratio([](auto& r) { r.model.mtp_layers = 1; }) > 1.005);
      if (stack == "torchtitan" || stack == "fms-fsdp-2024")
        CHECK(ratio([](auto& r) { r.settings.compile = program::CompiledPart::None; }) > 1.05);
    }
}

TEST_CASE("What is offloaded leaves the device and does not come for free", "[sim][synthetic]") {
  const std::vector<Change> offloads{
      [](auto& r) { r.offload_activation_layers = r.model.num_layers / 2; },
      [](auto& r) { r.offload_activation_layers = r.model.num_layers; },
      [](auto& r) { r.offload_optimizer = true; },
      [](auto& r) { r.offload_optimizer = r.offload_parameters = true; }};
  for (const std::string& stack : kStacks)
    for (const Change& offload : offloads) {
      TrainingRun run = llama(stack);
      const RunPrediction kept = predict(run);
      offload(run);
      const RunPrediction gone = predict(run);
      CAPTURE(stack, run.offload_activation_layers, run.offload_optimizer);
      CHECK(gone.step_time_s >= kept.step_time_s / kSame);
      CHECK(gone.memory.allocated() < kept.memory.allocated());
      CHECK(gone.memory.host > 0);
    }
}

// With a scale a block the sums are scaled outside of Hopper's matrix units, so measured products
// reach 1.5 times 16 bit's rate instead of 1.8; Blackwell's units scale them, so either is as fast.
TEST_CASE("Products of large models are faster in FP8", "[sim][synthetic]") {
  for (const char* stack : {"megatron-core", "nemo-automodel", "torchtitan", "jax-xla"})
    for (const char* cluster : {"dgx-h100", "dgx-b200", "gb200-nvl72"}) {
      TrainingRun run = llama(stack, true);
      run.cluster = cluster;
      run.recompute = RunRecompute::Full;
      CAPTURE(stack, cluster);
      const double tensor = slower_by(run, [](auto& r) { r.precision = RunPrecision::Fp8; });
      const double block = slower_by(run, [](auto& r) { r.precision = RunPrecision::Fp8Block; });
      CHECK(tensor < 0.85);
      CHECK(tensor > 0.5);
      const bool hopper = cluster == std::string_view("dgx-h100");
      CHECK(block >= (hopper ? 1.1 : 0.99) * tensor);
      CHECK(block < (hopper ? 0.95 : 0.9));
    }
}

// With gradients in bf16 both move 2 bytes of them, but parameters cross the network in one case
// only: 2 x 2 + 2 bytes against 2 x 2 x 1/8 x 8 of all devices of a node.
TEST_CASE("Sharding in nodes only spares slow networks and takes memory", "[sim][synthetic]") {
  for (const std::string& stack : kFullySharded)
    for (const int gbps : {100, 200, 400})
      for (const int dp : {32, 256}) {
        TrainingRun run = llama(stack);
        run.settings.gradient_sum_dtype = program::StateDType::BF16;
        run.cluster = fmt::format("a100-80g-generic-{}g-node", gbps);
        run.parallel.dp = dp;
        with_microbatches(run, 1);
        const RunPrediction everywhere = predict(run);
        run.shard_in_node = true;
        const RunPrediction in_node = predict(run);
        CAPTURE(stack, gbps, dp);
        CHECK(in_node.step_time_s <= everywhere.step_time_s * kSame);
        CHECK(in_node.memory.allocated() > everywhere.memory.allocated());
      }
}

TEST_CASE("Each stage of sharding takes less memory", "[sim][synthetic]") {
  for (const std::string& stack : kStacks) {
    TrainingRun run = llama(stack);
    double before = INFINITY;
    for (const int stage : {0, 1, 2, 3}) {
      run.zero_stage = stage;
      with_microbatches(run, 1);
      const double bytes = predict(run).memory.allocated();
      CAPTURE(stack, stage);
      CHECK(bytes < before);
      before = bytes;
    }
  }
}

TEST_CASE("Experts: what evens the load or merges copies is not slower", "[sim][synthetic]") {
  for (const std::string& stack : kStacks)
    for (const int ep : {2, 4, 8}) {
      TrainingRun run = mixtral(stack);
      run.parallel.ep = ep;
      CAPTURE(stack, ep);
      const auto ratio = [&](const Change& change) { return slower_by(run, change); };
      CHECK(ratio([](auto& r) { r.settings.balanced_routing = true; }) < 1);
      // Eight of 256 experts lie in two nodes, so that 16 ranks get 2 rows over the network, not 8.
      run.model.moe->num_experts = 256;
      run.model.moe->top_k = 8;
      run.parallel.dp = run.parallel.ep = 16;
      run.parallel.tp = run.parallel.pp = 1;
      CHECK(ratio([](auto& r) { r.settings.expert_dispatch = program::ExpertDispatch::DeepEp; }) <
            1);
      run = mixtral(stack);
      run.parallel.ep = ep;
      CHECK(ratio([](auto& r) { r.settings.overlap_ep = true; }) < 1);
      CHECK(ratio([](auto& r) { r.settings.grouped_experts = false; }) >= 1 / kSame);
      const RunPrediction own = predict(run);
      CHECK(own.memory.parameters + own.memory.optimizer > 0);
      CHECK(std::isfinite(own.step_time_s));
    }
}

TEST_CASE("Windows shorten attention, context parallelism spreads it", "[sim][synthetic]") {
  for (const std::string& stack : kStacks) {
    TrainingRun run = llama(stack);
    run.seq_len = 32768;
    run.recompute = RunRecompute::Full;
    CAPTURE(stack);
    CHECK(slower_by(run, [](auto& r) {
            r.model.window = 4096;
            r.model.layer_pattern = {models::Mixer::Sliding, models::Mixer::Full};
          }) < 1);
    const RunPrediction whole = predict(run);
    for (const bool all_to_all : {false, true}) {
      TrainingRun spread = run;
      if (all_to_all) spread.context_parallel = program::ContextMethod::Ulysses;
      spread.parallel.cp = 4;
      spread.parallel.dp = 16;
      const RunPrediction own = predict(spread);  // the same sequences on the same devices
      CHECK(own.memory.activations < whole.memory.activations);
      CHECK(own.step_time_s > whole.step_time_s);
      CHECK(own.step_time_s < 1.6 * whole.step_time_s);
    }
  }
}

}  // namespace meshplan::sim
