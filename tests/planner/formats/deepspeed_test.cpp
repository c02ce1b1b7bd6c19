#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "planner/formats/formats_support.hpp"
#include "program/checks/check.hpp"

namespace meshplan::planner::format_tests {
namespace {

using Catch::Matchers::Contains;
using program::Plan;
using program::RecomputeKind;

constexpr const char* kZero3 = R"({
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 2,
  "gradient_clipping": 1.0,
  "bf16": {"enabled": true},
  "zero_optimization": {
    "stage": 3,
    "overlap_comm": true,
    "contiguous_gradients": true,
    "reduce_bucket_size": 5e8,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "stage3_prefetch_bucket_size": 5e7
  },
  "steps_per_print": 100
})";

ImportedPlan read_deepspeed_json(const std::string& text, std::optional<int> ranks = {}) {
  return read_as("deepspeed", request_of("ds_config.json", text, "llama3-8b", ranks));
}

std::string deepspeed_error(const std::string& text, std::optional<int> ranks = {}) {
  return read_error("deepspeed", request_of("ds_config.json", text, "llama3-8b", ranks));
}

}  // namespace

TEST_CASE("A ds_config.json becomes a plan of as many ranks as its batch sizes say",
          "[formats][deepspeed]") {
  const ImportedPlan imported = read_deepspeed_json(kZero3);
  CHECK(imported.plan.parallel.dp == 32);
  CHECK(imported.plan.zero_stage == 3);
  CHECK(imported.plan.offload_optimizer);
  CHECK(imported.plan.micro_batch_size == 4);
  CHECK(imported.plan.num_microbatches() == 2);
  CHECK(imported.plan.workload.precision == DType::BF16);
  CHECK(imported.plan.bucket_bytes == 1'000'000'000);
  CHECK(imported.facts.at("gradient_accumulation") == 2);
  CHECK(imported.plan.stack.settings.overlap_dp == true);
  CHECK(mentions(imported.assumptions, "workload.seq_len = 4096"));
  CHECK(mentions(imported.ignored, "steps_per_print = 100"));
  CHECK(mentions(imported.ignored, "stage3_prefetch_bucket_size"));
}

TEST_CASE("How many parameters may live is in the plan, both ways", "[formats][deepspeed]") {
  const std::string given = replaced(kZero3, "\"stage3_prefetch_bucket_size\": 5e7",
                                     "\"stage3_max_live_parameters\": 2e8");
  const Plan plan = read_deepspeed_json(given).plan;
  CHECK(plan.stack.settings.live_parameters == 200'000'000);
  const Json config =
      Json::parse(text_of(format_of("deepspeed").write({.plan = plan}), "ds_config.json"));
  CHECK(config["zero_optimization"]["stage3_max_live_parameters"] == 200'000'000);
  CHECK_FALSE(read_deepspeed_json(kZero3).plan.stack.settings.live_parameters);
}

TEST_CASE("Weights on the host are in the plan, both ways", "[formats][deepspeed][offload]") {
  const std::string both = replaced(kZero3, "\"stage3_prefetch_bucket_size\": 5e7",
                                    "\"offload_param\": {\"device\": \"cpu\"}");
  Plan plan = read_deepspeed_json(both).plan;
  CHECK(plan.offload_parameters);
  CHECK(program::check(plan).empty());
  const Json config =
      Json::parse(text_of(format_of("deepspeed").write({.plan = plan}), "ds_config.json"));
  CHECK(config["zero_optimization"]["offload_param"]["device"] == "cpu");
  CHECK_THAT(write_error("nanotron", plan), Contains("offload_parameters = true"));
  const ImportedPlan alone =
      read_deepspeed_json(replaced(both, "\"offload_optimizer\"", "\"offload_optimiser\""));
  CHECK_FALSE(alone.plan.offload_parameters);
  CHECK(mentions(alone.assumptions, "weights in host memory are in a plan with ZeRO-3"));
}

TEST_CASE("The batch triple must agree with the GPUs", "[formats][deepspeed]") {
  CHECK_THAT(deepspeed_error(kZero3, 16),
             Contains("train_batch_size: 256 is not") && Contains("nearest: 128"));
  CHECK(read_deepspeed_json(replaced(kZero3, "\"train_batch_size\": 256,", ""), 16)
            .plan.workload.global_batch_size == 128);
  CHECK(read_deepspeed_json(replaced(kZero3, "\"gradient_accumulation_steps\": 2,", ""), 16)
            .plan.num_microbatches() == 4);
  CHECK_THAT(deepspeed_error(replaced(kZero3, "\"train_batch_size\": 256,", "")),
             Contains("nothing says how many GPUs"));
}

TEST_CASE("What ds_config.json leaves to the script is taken from a script beside it",
          "[formats][deepspeed]") {
  std::string text = replaced(kZero3, "\"train_micro_batch_size_per_gpu\": 4",
                              "\"train_micro_batch_size_per_gpu\": \"auto\"");
  text = replaced(text, "\"train_batch_size\": 256", "\"train_batch_size\": \"auto\"");
  ImportRequest request = request_of("ds_config.json", text, "llama3-8b");
  request.files["run.sh"] =
      "SEQ=8192\ndeepspeed --num_gpus 8 --num_nodes 2 train.py --deepspeed ds_config.json \\\n"
      "  --per_device_train_batch_size 2 --max_seq_length $SEQ --gradient_checkpointing true\n";
  const ImportedPlan imported = read_as("deepspeed", request);
  CHECK(imported.plan.parallel.dp == 16);
  CHECK(imported.plan.micro_batch_size == 2);
  CHECK(imported.plan.workload.seq_len == 8192);
  CHECK(imported.plan.recompute.kind == RecomputeKind::Full);
  CHECK(mentions(imported.assumptions, "train_batch_size = auto"));
}

TEST_CASE("auto of ds_config.json is what the Trainer fills in", "[formats][deepspeed]") {
  constexpr const char* kAuto = R"({
    // of every run
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", },
  })";
  const ImportedPlan open = read_deepspeed_json(kAuto, 16);
  CHECK(open.plan.micro_batch_size == 8);
  CHECK(open.plan.workload.global_batch_size == 128);
  CHECK(open.plan.workload.precision == DType::BF16);
  CHECK(open.plan.bucket_bytes == 4096LL * 4096 * 2);
  CHECK(mentions(open.assumptions, "train_micro_batch_size_per_gpu = 8 (auto"));
  CHECK(mentions(open.assumptions, "workload.precision = bf16 (bf16.enabled = auto"));
  CHECK_FALSE(mentions(open.assumptions, "as if it were not there"));

  ImportRequest request = request_of("ds_config.json", kAuto, "llama3-8b", 16);
  request.arguments =
      "--per_device_train_batch_size 2 --gradient_accumulation_steps=4 --fp16 True "
      "--bf16 false --learning_rate 1e-5 --max_grad_norm 0.5";
  const ImportedPlan said = read_as("deepspeed", request);
  CHECK(said.plan.micro_batch_size == 2);
  CHECK(said.plan.num_microbatches() == 4);
  CHECK(said.plan.workload.precision == DType::F16);
  CHECK(said.plan.workload.optimizer.learning_rate == 1e-5);
  CHECK(said.plan.workload.optimizer.clip_norm == 0.5);
  request.arguments = "--bf16 maybe";
  CHECK_THAT(read_error("deepspeed", request),
             Contains("--args:1: --bf16 maybe: expected true or false"));
}

TEST_CASE("Sections that change what a step computes are refused", "[formats][deepspeed]") {
  CHECK_THAT(deepspeed_error(replaced(kZero3, "\"steps_per_print\": 100",
                                      "\"progressive_layer_drop\": {\"enabled\": true}")),
             Contains("progressive_layer_drop.enabled: expected none of it: layers are left out"));
  CHECK(deepspeed_error(replaced(kZero3, "\"steps_per_print\": 100",
                                 "\"progressive_layer_drop\": {\"enabled\": false}"))
            .empty());
}

TEST_CASE("A batch without a micro-batch is divided over the GPUs", "[formats][deepspeed]") {
  constexpr const char* kBatch = R"({"train_batch_size": 64, "fp16": {"enabled": true}})";
  CHECK(recognized_format("ds.json", kBatch) == &format_of("deepspeed"));
  CHECK(read_deepspeed_json(kBatch, 16).plan.micro_batch_size == 4);
  CHECK_THAT(deepspeed_error(kBatch), Contains("give it with --gpus"));
  CHECK_THAT(read_error("deepspeed", request_of("ds_config.json", kBatch)),
             Contains("for example: meshplan import ds_config.json --model llama3-8b"));
}

TEST_CASE("Wrong values of a ds_config.json are named with their place", "[formats][deepspeed]") {
  CHECK_THAT(deepspeed_error(replaced(kZero3, "\"stage\": 3", "\"stage\": 4")),
             Contains("ds_config.json: zero_optimization.stage: expected an integer of at most 3; "
                      "nearest: 3, got 4"));
  CHECK_THAT(deepspeed_error(replaced(kZero3, "\"device\": \"cpu\"", "\"device\": \"cpus\"")),
             Contains("offload_optimizer.device: unknown value 'cpus'; did you mean 'cpu'"));
  CHECK_THAT(deepspeed_error(replaced(kZero3, "\"enabled\": true", "\"enabled\": \"yes\"")),
             Contains("bf16.enabled: expected true or false, got \"yes\""));
  CHECK_THAT(
      deepspeed_error(replaced(kZero3, "\"train_batch_size\": 256", "\"train_batch_size\": 1e300")),
      Contains("train_batch_size: expected an integer of at most"));
  CHECK_THAT(read_error("deepspeed", request_of("ds_config.json", kZero3)),
             Contains("does not describe the model"));
  CHECK_THAT(deepspeed_error("{\"a\":" + std::string(100000, '[')), Contains("deeper"));
}

TEST_CASE("ds_config.json says what the plan says", "[formats][deepspeed]") {
  Plan plan = plan_of("llama3-8b", 16);
  plan.zero_stage = 2;
  plan.offload_optimizer = true;
  plan.recompute.kind = RecomputeKind::Full;
  const Json config =
      Json::parse(text_of(format_of("deepspeed").write({.plan = plan}), "ds_config.json"));
  CHECK(config["train_batch_size"] == 128);
  CHECK(config["gradient_accumulation_steps"] == 8);
  CHECK(config["zero_optimization"]["stage"] == 2);
  CHECK(config["zero_optimization"]["offload_optimizer"]["device"] == "cpu");
  CHECK(config["bf16"]["enabled"] == true);
  CHECK(config["activation_checkpointing"]["number_checkpoints"] == 32);
}

TEST_CASE("What ds_config.json has no words for is refused", "[formats][deepspeed]") {
  const auto error = [](auto change) {
    Plan plan = plan_of("llama3-8b");
    change(plan);
    return write_error("deepspeed", plan);
  };
  CHECK(error([](Plan&) {}).empty());
  CHECK_THAT(error([](Plan& p) { p.parallel.pp = 2; }),
             Contains("parallel.pp = 2: stages are built in Python"));
  CHECK_THAT(error([](Plan& p) { p.parallel.tp = 2, p.parallel.sp = true; }),
             Contains("parallel.sp = true"));
  CHECK_THAT(error([](Plan& p) { p.parallel.cp = 2; }),
             Contains("context_parallel = all_gather") && Contains("nearest: ulysses"));
  CHECK_THAT(error([](Plan& p) { p.offload_optimizer = true; }),
             Contains("offload_optimizer = true"));
  CHECK_THAT(error([](Plan& p) { p.recompute.kind = RecomputeKind::Selective; }),
             Contains("recompute.kind = selective"));
}

}  // namespace meshplan::planner::format_tests
