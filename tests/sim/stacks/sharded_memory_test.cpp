// The peak of a stage whose layers are gathered one by one, and what the allocator holds for it,
// worked out by hand from differences: vocabularies, precisions and micro-batches change a few
// terms.
#include <catch2/catch.hpp>

#include "models/model_spec.hpp"
#include "sim/run_cases.hpp"
#include "sim/stacks/run_prediction.hpp"

namespace meshplan::sim {
namespace {

constexpr double kWidth = 4096, kShards = 64, kShardTokens = 2 * 1024;

/// One micro-batch of two sequences, head and embedding apart.
TrainingRun sharded(const char* software, int vocabulary) {
  TrainingRun run = small_gpt(24);
  run.model.hidden_size = 4096;
  run.model.ffn_size = 16384;
  run.model.head_size = 256;
  run.model.vocab_size = vocabulary;
  run.model.tied_embeddings = false;
  run.profile = software;
  run.cluster = "dgx-h100";
  run.parallel.dp = 64;
  run.global_batch_size = 128;
  run.zero_stage = 3;
  run.recompute = RunRecompute::Full;
  return run;
}

RunMemory memory(const TrainingRun& run) {
  const RunMemory memory = predict(run).memory;
  REQUIRE(memory.fits());
  return memory;
}

double beside_states(const RunMemory& memory) {
  return memory.reserved - memory.parameters - memory.gradients - memory.optimizer -
         memory.activations;
}

/// Before its loss was compiled, and embedding and head in one unit.
constexpr const char* kOlder = "torchtitan@2024-12";

constexpr int kFew = 614'400, kMore = 716'800;

double by_word(const char* software, double (*what)(const RunMemory&), int microbatches = 1) {
  TrainingRun few = sharded(software, kFew), more = sharded(software, kMore);
  few.global_batch_size = more.global_batch_size = std::int64_t{128} * microbatches;
  return (what(memory(more)) - what(memory(few))) / (kMore - kFew);
}

double transient(const RunMemory& memory) {
  return memory.transient;
}

}  // namespace

// A word more is 12 bytes of every token's loss and a row of embedding and head, 2 bytes each,
// which stay gathered. Its gradients' shards, 4 bytes, do not exist yet when the loss is
// differentiated.
TEST_CASE("A sharded run with a large vocabulary is fullest at its loss", "[sim][prediction]") {
  const double word = 12 * kShardTokens + 2 * 2 * kWidth;
  CHECK(by_word(kOlder, transient) == Approx(word - 2 * 4 * kWidth / kShards).epsilon(1e-6));
  CHECK(by_word(kOlder, transient, 2) == Approx(word).epsilon(1e-6));
}

// The loss takes blocks of 2 + 3 x 4 bytes; embedding and head lie in the gather's pool and once
// more where they compute.
TEST_CASE("Blocks of the loss and of gathers are held apart", "[sim][prediction]") {
  CHECK(by_word(kOlder, beside_states) ==
        Approx(14 * kShardTokens + 2 * 2 * 2 * kWidth).epsilon(1e-6));
}

// Blocks of 14 bytes a logit serve nothing else; embedding and head, one tensor, are gathered where
// they compute, and their gradient is widened to 4 bytes in a pool of its own, unless sums are in
// 2.
TEST_CASE("FSDP 1 widens gradients beside all else", "[sim][prediction]") {
  const auto word = [](bool half) {
    TrainingRun few = sharded("llm-foundry-2023", kFew), more = sharded("llm-foundry-2023", kMore);
    for (TrainingRun* run : {&few, &more}) {
      run->model.tied_embeddings = true;
      if (half) run->settings.gradient_sum_dtype = program::StateDType::BF16;
    }
    return (beside_states(memory(more)) - beside_states(memory(few))) / (kMore - kFew);
  };
  CHECK(word(true) == Approx(14 * kShardTokens + 2 * kWidth).epsilon(1e-6));
  CHECK(word(false) == Approx(14 * kShardTokens + (2 + 4) * kWidth).epsilon(1e-6));
}

// Composer's metrics copy the logits, which the trainer keeps, to fp32 and keep their log-softmax:
// 2 + 4 + 4 bytes, when the activations of backward are gone. Where these are more, the loss
// decides: 16-bit logits and their gradient, beside embedding and head, one tensor.
TEST_CASE("Metrics from logits have the memory of activations", "[sim][prediction]") {
  const auto word = [](int few, int more, RunRecompute recompute, int sequences) {
    const auto allocated = [&](int vocabulary) {
      TrainingRun run = sharded("llm-foundry-2023", vocabulary);
      run.model.tied_embeddings = true;
      run.micro_batch_size = sequences;
      run.global_batch_size = std::int64_t{128} * sequences;
      run.recompute = recompute;
      const RunMemory kept = memory(run);
      return kept.transient + kept.activations;
    };
    return (allocated(more) - allocated(few)) / (more - few);
  };
  CHECK(word(kFew, kMore, RunRecompute::Full, 2) == Approx(10 * kShardTokens).epsilon(1e-6));
  CHECK(word(204'800, 215'040, RunRecompute::None, 8) ==
        Approx(4 * 4 * kShardTokens + 2 * kWidth).epsilon(1e-6));
}

// Compiled, the loss keeps 16-bit logits and their gradient; the head's unit does not hold the
// embedding, of which as much is gathered.
TEST_CASE("Releases of torchtitan take less for the loss, and for the head", "[sim][prediction]") {
  CHECK(by_word("torchtitan@2025-04", beside_states) ==
        Approx(4 * kShardTokens + 2 * 2 * 2 * kWidth).epsilon(1e-6));
  CHECK(by_word("torchtitan@2025-08", beside_states) ==
        Approx(4 * kShardTokens + 2 * 2 * kWidth).epsilon(1e-6));
  CHECK(by_word("torchtitan", beside_states) == by_word("torchtitan@2025-08", beside_states));
}

// With few words a layer decides: 12 x 4096^2 parameters twice gathered, 4 bytes each in the sum
// behind it, and its gradients, 2 bytes, or the working set that it begins with, where that is
// more. Of 1,024 words embedding and head are gathered, and the head's gradient is there.
TEST_CASE("A sharded run with a small vocabulary is fullest in a layer", "[sim][prediction]") {
  const double layer = 12 * kWidth * kWidth + 4 * kWidth;
  const double rest = 3 * 2 * 1024 * kWidth + 64 * 1024 * 1024;
  TrainingRun run = sharded(kOlder, 1024);
  CHECK(memory(run).transient == Approx((2 + 2 + 4 + 2) * layer + rest).epsilon(1e-4));

  run.micro_batch_size = 8;
  run.global_batch_size = std::int64_t{8} * 64;
  const double input = 8 * 1024 * kWidth * 2;
  TrainingRun whole = run;  // its layers keep what they work on
  whole.recompute = RunRecompute::None;
  const double kept = (predict(whole).memory.activations - memory(run).activations) / 24 + input;
  REQUIRE(kept > 2 * layer);
  CHECK(memory(run).transient == Approx((2 + 2 + 4) * layer + kept + rest).epsilon(1e-4));
}

// Every product is one of two: kept are queries, values and the gate, and the last one, which only
// a sum reads.
TEST_CASE("A compiler drops products that only a sum reads", "[sim][prediction]") {
  const auto activations = [](const char* software) {
    TrainingRun run = sharded(software, 1024);
    run.model = models::load_preset("llama3-8b");
    run.seq_len = 8192;
    run.recompute = RunRecompute::PerOp;
    run.micro_batch_size = 1;
    return predict(run).memory.activations;
  };
  CHECK(activations("torchtitan-eager") - activations("torchtitan") == 32 * 8192.0 * 4096 * 2);
}

TEST_CASE("Sharded gradients stay in the parameters' dtype however they are summed",
          "[sim][prediction]") {
  for (const char* software : {"torchtitan", "llm-foundry-2023"}) {
    TrainingRun run = sharded(software, 1024);
    const double gradients = memory(run).gradients;
    run.settings.gradient_sum_dtype = program::StateDType::BF16;
    CHECK(memory(run).gradients == gradients);
  }
}

// Two of 5e8 elements, or as large as the parameters.
TEST_CASE("Buckets are a sharded optimizer's", "[sim][prediction]") {
  TrainingRun run = sharded("megatron-deepspeed-2022", 1024);
  run.parallel = {.dp = 8};
  run.global_batch_size = 16;
  const auto buckets = [&](int layers) {
    run.model.num_layers = layers;
    run.zero_stage = 1;
    const double with = memory(run).transient;
    run.zero_stage = 0;
    return with - memory(run).transient;
  };
  CHECK(buckets(4) == Approx(2 * 2 * 5e8));
  const double layer = buckets(2) - buckets(1);
  CHECK(layer == Approx(2 * 2 * (12 * kWidth * kWidth + 4 * kWidth)));
}

}  // namespace meshplan::sim
