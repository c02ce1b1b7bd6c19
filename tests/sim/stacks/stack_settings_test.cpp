// What settings of a stack change in its runs, beside sums by hand.
#include <catch2/catch.hpp>

#include "sim/run_cases.hpp"
#include "sim/stacks/stack_memory.hpp"

namespace meshplan::sim {
namespace {

using program::StateDType;

TrainingRun megatron_run() {
  TrainingRun run = small_gpt(24);
  run.profile = "megatron-core";
  run.cluster = "dgx-h100";
  run.parallel.dp = 8;
  run.global_batch_size = 64;
  run.zero_stage = 1;
  return run;
}

/// Eight experts on as many ranks of a node.
TrainingRun experts() {
  TrainingRun run = megatron_run();
  run.model.moe = models::MoeSpec{.num_experts = 8, .top_k = 2, .expert_ffn_size = 1024};
  run.parallel.ep = 8;
  return run;
}

}  // namespace

TEST_CASE("Moments in 16 bit take two bytes a parameter less each", "[sim][stack]") {
  TrainingRun run = megatron_run();
  const double fp32 = predict(run).memory.optimizer;
  run.settings.first_moment_dtype = StateDType::BF16;
  CHECK(predict(run).memory.optimizer == Approx(fp32 * 10 / 12));
  run.settings.second_moment_dtype = StateDType::Fp8;
  CHECK(predict(run).memory.optimizer == Approx(fp32 * 7 / 12));
}

TEST_CASE("A loss in chunks keeps an eighth of the logits, a fused one four bytes of each",
          "[sim][stack]") {
  TrainingRun run = megatron_run();
  run.model.vocab_size = 128'000;
  const double logits = 2.0 * 1024 * 128'000;
  const double unfused = predict(run).memory.transient;
  run.settings.loss = program::LossKernel::Chunked;
  CHECK(unfused - predict(run).memory.transient == Approx(logits * (10 - 10.0 / 8)));
  run.settings.loss = program::LossKernel::Fused;
  CHECK(unfused - predict(run).memory.transient == Approx(logits * (10 - 4)));
}

TEST_CASE("Who gathers all tokens sends more than who sends them to their experts",
          "[sim][stack]") {
  TrainingRun run = experts();
  const double all_to_all = predict(run).seconds.experts;
  run.settings.expert_dispatch = program::ExpertDispatch::AllGather;
  const double all_gather = predict(run).seconds.experts;
  // A rank gets the tokens of the 7 others instead of 7/8 of its own, twice.
  CHECK(all_gather > 2.5 * all_to_all);
  CHECK(all_gather < 4.5 * all_to_all);
}

TEST_CASE("A verdict on memory has a margin", "[sim][stack]") {
  const auto verdict = [](double bytes) {
    return verdict_of({.bytes = bytes, .capacity_bytes = 100}, 0.06);
  };
  CHECK(verdict(93.9) == MemoryVerdict::Fits);
  CHECK(verdict(94.1) == MemoryVerdict::Tight);
  CHECK(verdict(100) == MemoryVerdict::Tight);
  CHECK(verdict(100.1) == MemoryVerdict::DoesNotFit);
  CHECK(key_of(MemoryVerdict::DoesNotFit) == "does_not_fit");
  CHECK(memory_margin({.software = "megatron-core", .settings = {}}, 0.04) == kMemoryError);
  CHECK(memory_margin({.software = "megatron-core", .settings = {}}, 0.1) == 0.1);
  CHECK(memory_margin({}, 0.04) == 0.04);
}

}  // namespace meshplan::sim
