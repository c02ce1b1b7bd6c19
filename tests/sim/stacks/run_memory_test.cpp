// Memory of a stage of another stack's run, by hand.
#include <catch2/catch.hpp>

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

}  // namespace meshplan::sim
