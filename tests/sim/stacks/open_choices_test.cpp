// What a run leaves open is chosen once, for time and memory.
#include "stacks/open_choices.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "core/units.hpp"
#include "sim/prices/operator_constants.hpp"
#include "sim/run_cases.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "stacks/memory/run_memory.hpp"

namespace meshplan::sim {
namespace {

/// 24 layers of 4096 on 8 devices of 80 GB: nothing of `sequences` is recomputed where it fits.
TrainingRun open_run(const char* profile, int sequences) {
  TrainingRun run = small_gpt(24);
  run.model.hidden_size = 4096;
  run.model.ffn_size = 16384;
  run.model.num_heads = run.model.num_kv_heads = 32;
  run.model.head_size = 128;
  run.seq_len = run.model.max_positions = 4096;
  run.profile = profile;
  run.cluster = "selene-a100";
  run.parallel.dp = 8;
  run.zero_stage = 3;
  run.micro_batch_size = sequences;
  run.global_batch_size = 8 * sequences;
  run.recompute_stated = false;
  return run;
}

TrainingRun stated(TrainingRun run, RunRecompute recompute) {
  run.recompute = recompute;
  run.recompute_stated = true;
  return run;
}

}  // namespace

TEST_CASE("A run that fits recomputes nothing unless it says so", "[sim][recompute]") {
  const TrainingRun run = open_run("llm-foundry-2023", 1);
  CHECK(predict(run) == predict(stated(run, RunRecompute::None)));
}

// LLM Foundry's activation_checkpointing is of all blocks or none.
TEST_CASE("A run that would not fit pays for what it must recompute", "[sim][recompute]") {
  const TrainingRun run = open_run("llm-foundry-2023", 8);
  REQUIRE_FALSE(predict(stated(run, RunRecompute::None)).memory.fits());
  CHECK(predict(run) == predict(stated(run, RunRecompute::Full)));
  CHECK(predict(run).seconds.recompute > 0);
}

TEST_CASE("Where a stack can recompute some layers it recomputes as few as fit",
          "[sim][recompute]") {
  TrainingRun run = open_run("fms-fsdp-2024", 3);
  for (; run.model.num_layers < 200; ++run.model.num_layers)
    if (!predict(stated(run, RunRecompute::None)).memory.fits()) break;
  run.model.num_layers += 4;
  TrainingRun chosen = PreparedRun(run).run();
  REQUIRE(chosen.recompute == RunRecompute::Full);
  REQUIRE(chosen.recompute_layers);
  CHECK(predict(chosen).memory.fits());
  --*chosen.recompute_layers;
  CHECK_FALSE(predict(chosen).memory.fits());
}

// Norms make 2 x 2 of the bytes a token and hidden element that a layer keeps: enough where little
// is missing, and cheaper than a product.
TEST_CASE("Modules that are cheap to make again come first", "[sim][recompute]") {
  TrainingRun run = open_run("megatron-core", 2);
  run.zero_stage = 1;
  run.parallel.tp = 2;
  run.parallel.sp = true;
  run.parallel.dp = 4;
  run.global_batch_size = 8;
  const auto capacity = load_data_sheet(run.cluster).device.memory_gib * kGib;
  for (; run.model.num_layers < 200; ++run.model.num_layers)
    if (!predict(stated(run, RunRecompute::None)).memory.fits()) break;
  const TrainingRun chosen = PreparedRun(run).run();
  CHECK(chosen.recompute == RunRecompute::Modules);
  CHECK(chosen.recompute_modules == models::ModuleSet{models::Module::Norms});
  CHECK(predict(run).memory.allocated() < capacity);
}

// Megatron-LM, transformer_config.py: an overlapped exchange goes with neither.
TEST_CASE("Overlapped exchanges refuse layers with experts made again", "[sim][recompute]") {
  TrainingRun run = open_run("megatron-core", 1);
  models::MoeSpec moe;
  moe.num_experts = 8;
  moe.top_k = 2;
  moe.expert_ffn_size = 4096;
  run.model.moe = moe;
  run.settings.overlap_ep = true;
  for (const TrainingRun& way : ways_to_run(run, load_execution_profile("megatron-core"))) {
    CHECK(way.recompute != RunRecompute::Full);
    CHECK_FALSE(way.recompute_modules.contains(models::Module::Moe));
  }
}

TEST_CASE("Memory is counted of what was chosen only", "[sim][recompute]") {
  const TrainingRun run = open_run("megatron-core", 1);
  const ExecutionProfile& profile = load_execution_profile(run.profile);
  const Cluster cluster = with_ranks(load_data_sheet(run.cluster), 8);
  CHECK_THROWS_AS(run_memory(run, profile, cluster,
                             stage_work(stated(run, RunRecompute::None),
                                        models::build_graph(run.model), profile, StageCut::Even)),
                  InvariantError);
}

// NeMo Automodel's recipes choose among losses; one that is computed in eight parts has an eighth
// of the logits.
TEST_CASE("Where logits do not fit, a stack that can computes its loss in chunks",
          "[sim][recompute]") {
  TrainingRun run = stated(open_run("nemo-automodel", 8), RunRecompute::Full);
  CHECK_FALSE(PreparedRun(run).run().settings.loss);
  run.model.vocab_size = 600'000;
  REQUIRE(PreparedRun(run).run().settings.loss == program::LossKernel::Chunked);
  CHECK(predict(run).memory.fits());
  run.settings.loss = program::LossKernel::Unfused;  // stated: nothing is open
  CHECK(PreparedRun(run).run().settings.loss == program::LossKernel::Unfused);
  CHECK_FALSE(predict(run).memory.fits());
}

}  // namespace meshplan::sim
