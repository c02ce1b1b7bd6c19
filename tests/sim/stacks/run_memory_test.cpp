// Memory of a stage of another stack's run, by hand.
#include <catch2/catch.hpp>

#include "models/counts.hpp"
#include "sim/run_cases.hpp"

namespace meshplan::sim {
namespace {

/// Layers of 8 experts of so many hidden elements over 8 replicas.
TrainingRun with_experts(int expert_ffn, int zero_stage) {
  TrainingRun run = small_gpt(2);
  run.profile = "megatron-core";
  run.cluster = "dgx-h100";
  run.model.ffn_size = 0;
  run.model.moe = models::MoeSpec{.num_experts = 8, .top_k = 2, .expert_ffn_size = expert_ffn};
  run.parallel.dp = 8;
  run.parallel.ep = 4;
  run.zero_stage = zero_stage;
  run.global_batch_size = 32;
  return run;
}

}  // namespace

// Each of 2 layers has 8 / 4 experts of two matrices here. A copy of them is on every fourth rank,
// so that ZeRO divides 12 bytes a parameter, the fp32 copy and two moments, by 2 and not by 8.
TEST_CASE("ZeRO divides the state of experts among those that hold the same", "[sim][memory]") {
  constexpr double kParameters = 2.0 * 2 * (2 * 1024 * 1024);  // of 1024 more hidden elements
  for (const int zero_stage : {0, 1}) {
    const RunMemory narrow = memory_of(with_experts(1024, zero_stage));
    const RunMemory wide = memory_of(with_experts(2048, zero_stage));
    CHECK(wide.parameters - narrow.parameters == Approx(2 * kParameters));
    CHECK(wide.optimizer - narrow.optimizer ==
          Approx(12 * kParameters / (zero_stage == 0 ? 1 : 2)));
  }
}

TEST_CASE("ZeRO 2 and 3 divide gradients and weights of experts as their state", "[sim][memory]") {
  const auto more = [](int zero_stage, double RunMemory::*bytes) {
    TrainingRun narrow = with_experts(1024, zero_stage), wide = with_experts(2048, zero_stage);
    narrow.profile = wide.profile = "deepspeed";
    return memory_of(wide).*bytes - memory_of(narrow).*bytes;
  };
  const double gradients = more(0, &RunMemory::gradients);
  CHECK(gradients > 0);
  CHECK(more(1, &RunMemory::gradients) == Approx(gradients));
  CHECK(more(2, &RunMemory::gradients) == Approx(gradients / 2));
  CHECK(more(3, &RunMemory::parameters) == Approx(more(0, &RunMemory::parameters) / 2));
}

// Megatron-LM's schedules.py, get_pp_rank_microbatches: rank 1 of 4 runs (4 - 1 - 1) * 2 + 4 chunks
// ahead, and one more before its first backward.
TEST_CASE("An interleaved stage keeps what runs ahead of its first backward", "[sim][memory]") {
  TrainingRun run = small_gpt(8);
  run.profile = "megatron-core";
  run.cluster = "dgx-h100";
  run.parallel.pp = 4;
  run.global_batch_size = 32;
  const double layer = memory_of(run, 3).activations / 2;  // two layers of one micro-batch
  run.parallel.vpp = 2;                                    // chunks of a layer
  CHECK(memory_of(run, 1).activations == Approx(9 * layer));
}

// Of P parameters over N ranks (Rajbhandari et al. 2020, ZeRO, section 3.1 and figure 1) ZeRO 1
// keeps 2 P + 2 P + 12 P / N bytes, ZeRO 2 2 P + 14 P / N, ZeRO 3 16 P / N; beside these the
// profile has the shard's gradients in fp32 while the optimizer works.
TEST_CASE("DeepSpeed's stages divide states as the paper says", "[sim][memory]") {
  TrainingRun run = small_gpt(4);
  run.profile = "deepspeed";
  run.cluster = "dgx-h100";
  run.parallel.dp = 8;
  run.global_batch_size = 32;
  const auto parameters =
      static_cast<double>(models::count_parameters(models::build_graph(run.model)).total);
  const double part = parameters / 8;
  for (const auto& [stage, expected] : {std::pair{0, 16 * parameters},
                                        {1, 4 * parameters + 12 * part},
                                        {2, 2 * parameters + 14 * part},
                                        {3, 16 * part}}) {
    run.zero_stage = stage;
    const RunMemory memory = memory_of(run);
    const double widened = stage > 0 ? 4 * part : 0;
    CAPTURE(stage);
    CHECK(memory.parameters + memory.gradients + memory.optimizer ==
          Approx(expected + widened).epsilon(1e-3));
  }
}

// Two buckets of 16-bit gradients; with ZeRO 3 all layers stay gathered where as many parameters
// may live, else two (deepspeed/runtime/zero/config.py).
TEST_CASE("DeepSpeed's buckets and live parameters are those of the run", "[sim][memory]") {
  TrainingRun run = small_gpt(8);
  run.profile = "deepspeed";
  run.cluster = "dgx-h100";
  run.parallel.dp = 8;
  run.global_batch_size = 32;
  run.zero_stage = 1;
  run.bucket_elements = 1e6;
  const double small = memory_of(run).transient;
  run.bucket_elements = 5e6;
  CHECK(memory_of(run).transient - small == Approx(2 * 2 * 4e6));

  run.zero_stage = 3;
  run.settings.live_parameters = 1'000'000'000;
  const double alive = memory_of(run).transient;
  run.settings.live_parameters = 0;
  const double layer = 12 * 1024 * 1024 + 4 * 1024;  // matrices, two norms with biases
  const double ends = 2 * 1024 * 1024 + 2 * 1024;    // embedding and head, with the norm before it
  CHECK(alive - memory_of(run).transient == Approx(2 * (8 * layer + ends - 2 * layer)));
}

// Frozen weights are 2 bytes each, adapters 16 (docs/fine_tuning/adapters.md); in four bits with
// scales of scales 0.516 (Dettmers et al. 2023, QLoRA, section 3: 0.127 bits a parameter).
TEST_CASE("Frozen weights have no state", "[sim][memory]") {
  TrainingRun run = small_gpt(4);
  run.profile = "megatron-core";
  run.cluster = "dgx-h100";
  run.zero_stage = 0;
  run.model.adapters = models::AdapterSpec{.rank = 8, .modules = {"qkv_proj", "o_proj"}};
  const auto all =
      static_cast<double>(models::count_parameters(models::build_graph(run.model)).total);
  const double adapters = 4 * 8 * (1024 + 3 * 1024 + 1024 + 1024);
  run.frozen = {"*", "!*.lora_a.weight", "!*.lora_b.weight"};
  const RunMemory memory = memory_of(run);
  CHECK(memory.parameters == Approx(2 * all));
  CHECK(memory.gradients ==
        Approx(load_execution_profile("megatron-core").gradient_bytes * adapters));
  CHECK(memory.optimizer == Approx(12 * adapters));
  run.settings.frozen_storage = program::FrozenStorage::Nf4;
  CHECK(memory_of(run).parameters ==
        Approx(2 * adapters + (4 + 0.127) / 8 * (all - adapters)).epsilon(1e-4));
}

// A token's row of 1024 elements in 16 bits is on its way to 2 experts; there are 2048 tokens and 2
// layers. Megatron-LM keeps what comes back, until it weighs rows between the experts' products
// (core 0.12.1).
TEST_CASE("What comes back from experts is kept where it is weighed afterwards", "[sim][memory]") {
  constexpr double kRows = 2.0 * 2048 * 2 * 1024 * 2;
  TrainingRun run = with_experts(1024, 1);
  const double now = memory_of(run).activations;
  run.profile = "megatron-core@25.02";
  CHECK(memory_of(run).activations - now == Approx(kRows));
}

// The same rows, there and back: torchtitan's list of what recompute by operation keeps has
// all-to-all since September 2025; before, it was all exchanged again.
TEST_CASE("Recompute by operation keeps what experts' ranks send", "[sim][memory]") {
  constexpr double kRows = 2.0 * 2048 * 2 * 1024 * 2;
  TrainingRun run = with_experts(1024, 3);
  run.recompute = RunRecompute::PerOp;
  run.profile = "torchtitan@2025-10";
  const PreparedRun kept(run);
  run.profile = "torchtitan@2025-08";
  const PreparedRun exchanged(run);
  CHECK(kept.memory_of_stages().front().activations -
            exchanged.memory_of_stages().front().activations ==
        Approx(2 * kRows));
  const Constants constants = constants_of(fitted_constants());
  CHECK(exchanged.predict(constants).step_time_s > kept.predict(constants).step_time_s);
}

// Per parameter a bf16 weight, its gradients in fp32 and in bf16, and a share of a master copy and
// two moments (DeepSpeed, runtime/bf16_optimizer.py); in 16 bit a gradient of 2 bytes, and in the
// share one of 4.
TEST_CASE("DeepSpeed keeps bf16 gradients beside those that it accumulates", "[sim][memory]") {
  TrainingRun run = small_gpt(4);
  run.profile = "megatron-deepspeed-2022";
  run.cluster = "jean-zay-a100";
  run.parallel.dp = 8;
  run.zero_stage = 1;
  run.global_batch_size = 32;
  const auto parameters =
      static_cast<double>(models::count_parameters(models::build_graph(run.model)).total);
  const auto states = [&] {
    const RunMemory memory = memory_of(run);
    return memory.parameters + memory.gradients + memory.optimizer;
  };
  CHECK(states() == Approx(parameters * (2 + 2 + 16.0 / 8)).epsilon(1e-3));
  run.settings.gradient_dtype = program::StateDType::F32;
  CHECK(states() == Approx(parameters * (2 + 4 + 2 + 12.0 / 8)).epsilon(1e-3));
}

// Four more layers of 12 D^2 weights, of 13 D biases and norms: Hopper's FP8 instructions take one
// layout, so a weight lies there in two.
TEST_CASE("Weights that travel in FP8 lie in FP8 on Blackwell", "[sim][memory]") {
  const auto layers = [](const char* cluster, RunPrecision precision) {
    TrainingRun run = small_gpt(4);
    run.profile = "megatron-core";
    run.cluster = cluster;
    run.precision = precision;
    const double few = memory_of(run).parameters;
    run.model.num_layers = 8;
    return memory_of(run).parameters - few;
  };
  const double weights = 4 * (12.0 * 1024 * 1024);
  CHECK(layers("dgx-b200", RunPrecision::Fp8) == Approx(weights).epsilon(2e-3));
  CHECK(layers("dgx-b200", RunPrecision::MxFp8) == Approx(2 * weights).epsilon(2e-3));
  CHECK(layers("dgx-h100", RunPrecision::Fp8) == Approx(2 * weights).epsilon(2e-3));
}

// Both moments in fp32, and of the master weight what its bf16 copy lacks.
TEST_CASE("NeMo 1 keeps half of a master weight", "[sim][memory]") {
  TrainingRun run = small_gpt(4);
  run.parallel.dp = 8;
  run.zero_stage = 1;
  run.global_batch_size = 32;
  const auto optimizer = [&](const char* software) {
    run.profile = software;
    return memory_of(run).optimizer;
  };
  CHECK(optimizer("megatron-core@24.11") / optimizer("megatron-core") == Approx(10.0 / 12));
  CHECK(optimizer("megatron-core@25.02") == optimizer("megatron-core"));
}

// 48 layers keep 32 bytes an element of 16 x 4,096 x 2,048, some 200 GB, or 2 where they are
// recomputed, 13 GB; with ten times the sequences these do not fit either.
TEST_CASE("XLA recomputes what exceeds the device", "[sim][memory]") {
  TrainingRun run = small_gpt(48);
  run.profile = "jax-xla";
  run.cluster = "dgx-h100";
  run.model.hidden_size = 2048;
  run.model.ffn_size = 8192;
  run.model.head_size = 128;
  run.seq_len = 4096;
  run.parallel.dp = 8;
  run.zero_stage = 3;
  run.recompute = RunRecompute::None;
  run.recompute_stated = true;
  run.micro_batch_size = 16;
  run.global_batch_size = std::int64_t{16} * 8;
  const RunMemory kept = memory_of(run);
  CHECK(kept.fits());
  CHECK(kept.allocated() + kept.context == Approx(kept.capacity));
  run.micro_batch_size = 160;
  run.global_batch_size = std::int64_t{160} * 8;
  CHECK_FALSE(memory_of(run).fits());
}

}  // namespace meshplan::sim
