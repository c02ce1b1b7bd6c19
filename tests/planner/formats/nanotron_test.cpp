#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "planner/formats/formats_support.hpp"

namespace meshplan::planner::format_tests {
namespace {

using Catch::Matchers::Contains;
using program::Plan;
using program::RecomputeKind;
using program::ScheduleKind;

// The shape of the project's own examples.
constexpr const char* kTiny = R"(
checkpoints:
  checkpoint_interval: 500
  checkpoints_path: checkpoints
general:
  project: course
  seed: 42
model:
  ddp_bucket_cap_mb: 50
  dtype: bfloat16
  init_method:
    std: 0.02
  model_config:
    hidden_act: silu
    hidden_size: 2048
    intermediate_size: 8192
    is_llama_config: true
    max_position_embeddings: 4096
    num_attention_heads: 16
    num_hidden_layers: 24
    num_key_value_heads: 4
    rms_norm_eps: 1.0e-05
    rope_scaling: null
    tie_word_embeddings: true
    vocab_size: 49152
optimizer:
  accumulate_grad_in_fp32: true
  clip_grad: 1.0
  learning_rate_scheduler:
    learning_rate: 0.0003
    lr_decay_steps: 900
    lr_decay_style: cosine
    lr_warmup_steps: 100
    lr_warmup_style: linear
    min_decay_lr: 3.0e-05
  optimizer_factory:
    adam_beta1: 0.9
    adam_beta2: 0.95
    adam_eps: 1.0e-08
    name: adamW
    torch_adam_is_fused: true
  weight_decay: 0.01
  zero_stage: 1
parallelism:
  dp: 4
  expert_parallel_size: 1
  pp: 2
  pp_engine: 1f1b
  tp: 2
  tp_linear_async_communication: true
  tp_mode: REDUCE_SCATTER
tokens:
  batch_accumulation_per_replica: 16
  micro_batch_size: 3
  sequence_length: 2048
  train_steps: 1000
)";

std::string nanotron_error(const std::string& text, std::optional<int> ranks = {}) {
  return read_error("nanotron", request_of("config.yaml", text, "", ranks));
}

}  // namespace

TEST_CASE("A nanotron configuration describes model and plan", "[formats][nanotron]") {
  const ImportedPlan read = read_as("nanotron", request_of("config.yaml", kTiny));
  const Plan& plan = read.plan;
  CHECK(plan.model.num_layers == 24);
  CHECK(plan.model.hidden_size == 2048);
  CHECK(plan.model.head_size == 128);
  CHECK(plan.model.tied_embeddings);
  CHECK_FALSE(plan.model.qkv_bias);
  CHECK(program::to_string(plan.parallel) == "tp2 sp pp2 dp4");
  CHECK(plan.schedule == ScheduleKind::OneFOneB);
  CHECK(plan.zero_stage == 1);
  CHECK(plan.workload.global_batch_size == 3 * 16 * 4);
  CHECK(plan.bucket_bytes == 50 << 20);
  CHECK(plan.workload.optimizer.decay_steps == 1000);
  CHECK(plan.workload.optimizer.minimum_ratio == 0.1);
  CHECK(read.plan.stack.software == "nanotron");
  CHECK(read.plan.stack.settings.overlap_tp == true);
  CHECK(mentions(read.assumptions, "rope_theta = 10000"));
  CHECK(mentions(read.assumptions, "nanotron cuts stages by cost"));
  CHECK(mentions(read.ignored, "general.project"));
}

TEST_CASE("Wrong values of a nanotron configuration are named", "[formats][nanotron]") {
  CHECK_THAT(nanotron_error(replaced(kTiny, "pp_engine: 1f1b", "pp_engine: 1f2b")),
             Contains("config.yaml: parallelism.pp_engine: unknown value '1f2b'; did you mean "
                      "'1f1b'"));
  CHECK_THAT(nanotron_error(replaced(kTiny, "  tp: 2\n", "")),
             Contains("parallelism.tp: expected a value"));
  CHECK_THAT(nanotron_error(replaced(kTiny, "expert_parallel_size: 1", "expert_parallel_size: 2")),
             Contains("expert_parallel_size"));
  CHECK_THAT(nanotron_error(kTiny, 8), Contains("= 16 GPUs, but there are 8"));
  CHECK_THAT(nanotron_error(replaced(kTiny, "zero_stage: 1", "zero_stage: 3")),
             Contains("zero_stage: expected an integer of at most 1"));
  CHECK_THAT(nanotron_error(replaced(kTiny, "micro_batch_size: 3", "micro_batch_size: 2147483647")),
             Contains("sequences; at most"));
}

TEST_CASE("A model given beside the file wins, and the difference is listed",
          "[formats][nanotron]") {
  const ImportedPlan read = read_as("nanotron", request_of("config.yaml", kTiny, "llama3-8b"));
  CHECK(read.plan.model == models::load_preset("llama3-8b"));
  CHECK(
      mentions(read.assumptions, "model.hidden_size = 4096 (the model given; the file says 2048)"));
}

TEST_CASE("What nanotron has no words for is refused", "[formats][nanotron]") {
  const auto error = [](auto change, const std::string& preset = "llama3-8b") {
    Plan plan = plan_of(preset);
    change(plan);
    return write_error("nanotron", plan);
  };
  CHECK(error([](Plan&) {}).empty());
  CHECK_THAT(error([](Plan& p) { p.parallel.tp = 16; }),
             Contains("parallel.tp = 16") && Contains("nearest: 8"));
  CHECK_THAT(error([](Plan& p) { p.zero_stage = 2; }), Contains("zero_stage = 2"));
  CHECK_THAT(error([](Plan& p) { p.parallel.pp = 2, p.schedule = ScheduleKind::ZbH1; }),
             Contains("schedule = zb-h1") && Contains("nearest: 1f1b"));
  CHECK_THAT(error([](Plan& p) { p.recompute.kind = RecomputeKind::Selective; }),
             Contains("recompute.kind = selective"));
  CHECK_THAT(error([](Plan&) {}, "gpt2-124m"), Contains("model = gpt2-124m"));
  CHECK_THAT(error([](Plan&) {}, "mixtral-8x7b"), Contains("model.moe"));
  CHECK_THAT(error([](Plan& p) { p.bucket_bytes = 1000; }), Contains("bucket_bytes = 1000"));
}

}  // namespace meshplan::planner::format_tests
