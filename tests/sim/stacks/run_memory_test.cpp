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

}  // namespace meshplan::sim
