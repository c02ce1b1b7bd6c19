// One failing plan per rule: the message gives the values, and what would be valid.
#include "program/checks/check.hpp"

#include <catch2/catch.hpp>
#include <limits>

#include "program/inspect.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using Catch::Contains;
using test::gpt2_style;
using test::llama_style;
using test::make_plan;

/// The message of the only rule that the plan breaks.
std::string message_of(const Plan& plan, const std::string& rule) {
  const std::vector<Violation> violations = check(plan);
  for (const Violation& violation : violations) UNSCOPED_INFO(violation.message);
  REQUIRE(violations.size() == 1);
  CHECK(violations.front().rule == rule);
  return violations.front().message;
}

}  // namespace

TEST_CASE("A plan that can be lowered breaks no rule", "[program][check]") {
  for (const Plan& plan : test::varied_plans()) {
    INFO(test::describe(plan));
    CHECK(check(plan).empty());
  }
}

TEST_CASE("Degrees and sizes must be positive", "[program][check]") {
  Plan plan = make_plan(llama_style());
  plan.parallel.dp = 0;
  CHECK(message_of(plan, "positive") == "dp = 0 must be at least 1");
  plan = make_plan(llama_style());
  plan.micro_batch_size = -1;
  CHECK(message_of(plan, "positive") == "micro_batch_size = -1 must be at least 1");
  plan = make_plan(llama_style());
  plan.workload.seq_len = 0;
  CHECK_THAT(message_of(plan, "positive"), Contains("seq_len = 0 must be at least 1"));
  plan = make_plan(llama_style());
  plan.workload.global_batch_size = 0;
  CHECK_THAT(message_of(plan, "positive"), Contains("global_batch_size = 0"));
}

TEST_CASE("Sizes beyond any machine or step are refused", "[program][check]") {
  Plan plan = make_plan(llama_style());
  plan.workload.seq_len = std::int64_t{1} << 62;
  CHECK_THAT(message_of(plan, "positive"), Contains("at most 2147483647"));
  plan = make_plan(llama_style());
  plan.parallel = {.tp = 1 << 20, .dp = 1 << 20};
  CHECK_THAT(message_of(plan, "world"), Contains("tp(1048576)") && Contains("at most 1048576"));
  plan = make_plan(llama_style());
  plan.parallel.vpp = std::numeric_limits<int>::max();
  CHECK_THAT(message_of(plan, "world"), Contains("vpp = 2147483647 must be at most 1048576"));
}

TEST_CASE("A step that could be neither counted nor ordered is refused", "[program][check]") {
  Plan plan = make_plan(llama_style());
  plan.micro_batch_size = std::numeric_limits<int>::max();
  CHECK_THAT(message_of(plan, "tokens"), Contains("at most 2147483647 are supported"));
  plan = make_plan(llama_style());
  plan.workload.global_batch_size = (1 << 20) + 1;
  CHECK_THAT(message_of(plan, "tasks"),
             Contains("micro-batches(1048577)") &&
                 Contains("at most 1048576 are supported: use a larger"));
  plan = make_plan(llama_style());
  plan.model.num_layers = 1 << 14;
  plan.model.ffn_size = 1 << 20;
  plan.workload.seq_len = plan.micro_batch_size = 1 << 14;
  plan.workload.global_batch_size = 1 << 30;
  CHECK_THAT(message_of(plan, "elements"), Contains("elements of a step; at most 3.6e+16"));
}

TEST_CASE("A program that nobody could list is refused with the way out", "[program][check]") {
  Plan plan = make_plan(llama_style());  // 4 layers
  plan.workload.global_batch_size = 1 << 17;
  CHECK(check(plan).empty());
  CHECK_THROWS_WITH(lower(plan, 0), Contains("4 layers of a stage * 131072 micro-batches") &&
                                        Contains("at most 131072"));
  plan.parallel.pp = 4;  // a stage's alone could be listed
  plan.workload.global_batch_size = 1 << 16;
  CHECK(lower(plan, 0).instances.size() > 1 << 17);
  CHECK_THROWS_WITH(lower_all(plan), Contains("4 layers of all stages * 65536 micro-batches"));
  plan.workload.global_batch_size = 1 << 15;  // so few layers, but of many operations
  plan.recompute.kind = RecomputeKind::Full;
  CHECK_THROWS_WITH(lower_all(plan), Contains("operations of 32768 micro-batches on stage 3") &&
                                         Contains("of the stages before") &&
                                         Contains("at most 4194304"));
}

TEST_CASE("tp must divide what it shards, and the nearest tp named divides all of it",
          "[program][check]") {
  Plan plan = make_plan(llama_style(), {.tp = 6});  // 12 heads, 4 of keys, ffn 96
  plan.model.num_heads = 12;
  CHECK_THAT(message_of(plan, "kv-heads"),
             Contains("num_kv_heads (4)") && Contains("tp (6)") && Contains("nearest tp: 4"));
  CHECK(check(make_plan(llama_style(), {.tp = 8})).empty());  // two ranks hold each key head
  plan = make_plan(llama_style(), {.tp = 4});
  plan.model.ffn_size = 98;
  CHECK_THAT(message_of(plan, "ffn"),
             Contains("ffn_size (98) is not divisible by tp (4); nearest tp: 2"));
  plan = make_plan(llama_style(), {.tp = 4});
  plan.model.num_heads = plan.model.num_kv_heads = 6;  // gcd(6, 96) = 6: 3 is nearest to 4
  const auto violations = check(plan);
  REQUIRE(violations.size() == 2);
  CHECK(violations[0].message == "num_heads (6) is not divisible by tp (4); nearest tp: 3");
}

TEST_CASE("sp needs a tensor-parallel group and divisible tokens", "[program][check]") {
  Plan plan = make_plan(llama_style(), {.sp = true});
  CHECK_THAT(message_of(plan, "sp"), Contains("sp needs tp > 1"));
  plan = make_plan(llama_style(), {.tp = 4, .sp = true});
  plan.workload.seq_len = 18;
  CHECK_THAT(message_of(plan, "sp"), Contains("micro_batch_size(1) * seq_len(18) = 18 tokens") &&
                                         Contains("tp (4)") && Contains("nearest tp: 2"));
  plan.micro_batch_size = 2;  // 36 tokens divide by 4
  CHECK(check(plan).empty());
}

TEST_CASE("Learned positions bound the sequence length, rotary ones do not", "[program][check]") {
  Plan plan = make_plan(gpt2_style());
  plan.workload.seq_len = 65;
  CHECK_THAT(message_of(plan, "positions"),
             Contains("seq_len (65) exceeds max_positions (64)") && Contains("nearest: 64"));
  plan.model = llama_style();
  CHECK(check(plan).empty());
}

TEST_CASE("Every stage needs a layer", "[program][check]") {
  CHECK_THAT(message_of(make_plan(llama_style(), {.pp = 5}), "stages"),
             Contains("pp (5) exceeds num_layers (4)") && Contains("nearest pp: 4"));
  Plan plan = make_plan(llama_style(), {.pp = 2});
  for (const std::vector<int>& layers : {std::vector{4}, std::vector{2, 3}, std::vector{5, -1}}) {
    plan.layers_per_stage = layers;
    CHECK_THAT(message_of(plan, "stages"),
               Contains("pp = 2") && Contains("4 layers") && Contains("nearest: [2, 2]"));
  }
  plan.layers_per_stage = {2'000'000'000, 2'000'000'000};
  CHECK_THAT(message_of(plan, "stages"), Contains("sum to 4000000000"));
  plan.parallel.pp = 5;
  plan.layers_per_stage = {1, 1, 0, 1, 1};
  CHECK_THAT(message_of(plan, "stages"), Contains("nearest pp: 4"));
  plan.layers_per_stage = {0, 2, 1, 1, 0};  // the embedding and the head alone
  CHECK(check(plan).empty());
}

TEST_CASE("A schedule fixes how many chunks a rank holds", "[program][check]") {
  Plan plan = make_plan(llama_style(), {.pp = 2, .vpp = 2}, 4);
  CHECK_THAT(message_of(plan, "vpp"), Contains("schedule '1f1b' has 1 chunk a rank, but vpp = 2") &&
                                          Contains("'interleaved'"));
  plan.schedule = ScheduleKind::Interleaved;
  CHECK(check(plan).empty());
  plan.parallel.vpp = 1;
  CHECK_THAT(message_of(plan, "vpp"), Contains("needs vpp >= 2") && Contains("'1f1b'"));
  plan.schedule = ScheduleKind::ZbV;
  CHECK_THAT(message_of(plan, "vpp"), Contains("has 2 chunks a rank, but vpp = 1; use vpp = 2"));
  plan.parallel.vpp = 4;
  plan.schedule = ScheduleKind::Interleaved;
  CHECK_THAT(message_of(plan, "stages"),
             Contains("pp(2) * vpp(4) = 8 exceeds num_layers (4)") && Contains("nearest pp: 1"));
}

TEST_CASE("A custom schedule must be one of the plan's size", "[program][check]") {
  Plan plan = make_plan(llama_style(), {.pp = 2}, 2);
  plan.schedule = ScheduleKind::Custom;
  plan.custom_schedule = {"0F0,0F1,0I0,0I1,0W0,0W1", "1F0,1B0,1F1,1B1"};
  CHECK(check(plan).empty());
  plan.custom_schedule[1] = "1F0,1B0";
  CHECK_THAT(message_of(plan, "schedule"),
             Contains("2 micro-batches") && Contains("stage 1: forward of micro-batch 1"));
  plan.custom_schedule[1] = "1F0,1Q0";
  CHECK_THAT(message_of(plan, "schedule"), Contains("custom_schedule: line 2, cell 2: '1Q0'"));
  plan.custom_schedule.pop_back();
  CHECK_THAT(message_of(plan, "schedule"), Contains("is for pp = 1 and vpp = 1"));
  plan.schedule = ScheduleKind::OneFOneB;
  CHECK_THAT(message_of(plan, "schedule"), Contains("schedule is not 'custom'"));
}

TEST_CASE("Offloaded weights need ZeRO-3 and the optimizer beside them",
          "[program][check][offload]") {
  Plan plan = make_plan(llama_style(), {.dp = 2});
  plan.zero_stage = 3;
  plan.offload_parameters = true;
  CHECK_THAT(message_of(plan, "offload"), Contains("offload_optimizer = false"));
  plan.offload_optimizer = true;
  CHECK(check(plan).empty());
  plan.zero_stage = 2;
  CHECK_THAT(message_of(plan, "offload"), Contains("zero_stage = 2"));
}

TEST_CASE("Offloaded activations need whole backwards, and no more layers than there are",
          "[program][check][offload]") {
  Plan plan = make_plan(llama_style(), {.pp = 2});
  plan.offload_activations = 2;
  CHECK(check(plan).empty());
  plan.offload_activations = 3;
  CHECK_THAT(message_of(plan, "offload"), Contains("0 to the 2 layers") && Contains("nearest: 2"));
  plan.offload_activations = 1;
  plan.schedule = ScheduleKind::ZbH1;
  CHECK_THAT(message_of(plan, "offload"), Contains("'zb-h1'") && Contains("'1f1b'"));
  plan = make_plan(llama_style());
  plan.model.ffn_size = 0;
  plan.model.moe = models::MoeSpec{.num_experts = 8, .top_k = 2, .expert_ffn_size = 32};
  plan.offload_activations = 1;
  CHECK_THAT(message_of(plan, "not-lowered"), Contains("offload_activations with experts"));
}

TEST_CASE("The global batch must divide into micro-batches of all replicas", "[program][check]") {
  Plan plan = make_plan(llama_style(), {.dp = 4});
  plan.micro_batch_size = 2;
  plan.workload.global_batch_size = 19;
  CHECK(message_of(plan, "batch") ==
        "global_batch_size (19) is not divisible by micro_batch_size(2) * dp(4) = 8; nearest: 16; "
        "or uneven_batch (--uneven-batch): 4 replicas take 6, 5, 4 and 4 sequences in 3 "
        "micro-batches each, and 5 of 24 computed are empty");
  plan.parallel.dp = 5;
  plan.micro_batch_size = 1;
  CHECK_THAT(message_of(plan, "batch"), Contains("5 replicas take 3 to 4 sequences in 4"));
  plan.workload.global_batch_size = 3;  // two replicas would have none
  CHECK(message_of(plan, "batch") ==
        "global_batch_size (3) is not divisible by micro_batch_size(1) * dp(5) = 5; nearest: 5");
}

TEST_CASE("An uneven batch leaves no replica without a sequence", "[program][check]") {
  Plan plan = make_plan(llama_style(), {.dp = 3});
  plan.workload.global_batch_size = 16;
  plan.uneven_batch = true;
  CHECK(check(plan).empty());
  CHECK(plan.num_microbatches() == 6);
  CHECK(plan.empty_sequences() == 2);
  int real = 0;
  for (int m = 0; m < 6; ++m)
    for (int dp = 0; dp < 3; ++dp) {
      CHECK(real_sequences(plan, m, dp) == (m == 5 && dp > 0 ? 0 : 1));
      real += real_sequences(plan, m, dp);
    }
  CHECK(real == 16);
  plan.micro_batch_size = 7;  // 7, 7 and 2
  CHECK(check(plan).empty());
  plan.micro_batch_size = 8;
  CHECK(message_of(plan, "uneven-batch") ==
        "uneven_batch: with micro_batch_size(8) * dp(3) = 24 some of the replicas have no sequence "
        "of the global batch (16); nearest: micro_batch_size 7");
  plan = make_plan(llama_style(), {.dp = 4});
  plan.workload.global_batch_size = 2;
  plan.uneven_batch = true;
  CHECK_THAT(message_of(plan, "uneven-batch"), Contains("nearest: dp 2"));
}

TEST_CASE("A batch that divides is the same plan with and without uneven_batch",
          "[program][check]") {
  Plan plan = make_plan(llama_style(), {.dp = 2});
  const int microbatches = plan.num_microbatches();
  plan.uneven_batch = true;
  CHECK(plan.num_microbatches() == microbatches);
  CHECK(plan.empty_sequences() == 0);
  CHECK(check(plan).empty());
  plan.stack.software = "megatron-core";
  CHECK(check(plan).empty());
  plan.workload.global_batch_size += 1;
  CHECK_THAT(message_of(plan, "uneven-batch"), Contains("meshplan's own program"));
}

TEST_CASE("A wrong rank order is refused with a valid one", "[program][check]") {
  Plan plan = make_plan(llama_style(), {.tp = 2});
  plan.rank_order = "tp-dp-pp";
  CHECK_THAT(message_of(plan, "mesh"), Contains("'tp-dp-pp'") && Contains("tp-cp-ep-dp-pp"));
}

TEST_CASE("fp16 is lowered", "[program][check]") {
  Plan plan = make_plan(llama_style());
  plan.workload.precision = DType::F16;
  CHECK(program::check(plan).empty());
}

TEST_CASE("Parts of a model that this version does not lower are refused by name",
          "[program][check]") {
  using models::ModelSpec;
  const std::vector<std::pair<std::string, void (*)(ModelSpec&)>> parts = {
      {"mixes by 'convolution'",
       [](ModelSpec& m) {
         m.convolution.emplace();
         m.layer_pattern = {models::Mixer::Convolution};
       }},
      {"hyper_connections", [](ModelSpec& m) { m.hyper_connections = {.streams = 2}; }},
      {"some line", [](ModelSpec& m) { m.only_predicted = {"some line"}; }},
      {"(mtp_layers) with positions 'learned' is not lowered by this version; --no-mtp",
       [](ModelSpec& m) {
         m.mtp_layers = 1;
         m.positions = models::Positions::Learned;
       }},
      {"dropout 0.1 is not lowered by this version; --no-dropout",
       [](ModelSpec& m) { m.dropout = 0.1; }},
  };
  for (const auto& [what, change] : parts) {
    Plan plan = make_plan(llama_style());
    change(plan.model);
    CHECK_THAT(message_of(plan, "not-lowered"), Contains("llama-style: ") && Contains(what));
  }
  Plan muon = make_plan(llama_style());
  muon.workload.optimizer.kind = OptimizerKind::Muon;
  CHECK_THAT(message_of(muon, "not-lowered"), Contains("'muon'") && Contains("use 'adamw'"));
  Plan moe = make_plan(llama_style());
  moe.model = models::load_preset("tiny-moe");
  moe.model.moe->router.score = models::RouterScore::Sigmoid;
  moe.model.moe->router.z_loss_coefficient = 0.1;
  CHECK_THAT(message_of(moe, "not-lowered"), Contains("(moe.router.z_loss_coefficient)"));
}

TEST_CASE("gpt-oss is lowered; a ring refuses its windows by name", "[program][check]") {
  for (const char* name : {"gpt-oss-20b", "gpt-oss-120b"}) {
    CAPTURE(name);
    Plan plan = make_plan(models::load_preset(name), {.dp = 2, .ep = 2});
    CHECK(check(plan).empty());
    plan = make_plan(models::load_preset(name), {.cp = 2});
    CHECK(check(plan).empty());
    plan.context_parallel = ContextMethod::Ring;
    CHECK_THAT(message_of(plan, "not-lowered"),
               Contains("a sliding window in a ring") && Contains("'all_gather'"));
  }
}

TEST_CASE("FP8 needs multiples of 16 tokens and features on every rank", "[program][check][fp8]") {
  const auto fp8 = [](const ParallelConfig& parallel, std::int64_t seq_len, int ffn_size) {
    Plan plan = make_plan(llama_style(), parallel);
    set_precision(plan.workload, Precision::Fp8);
    plan.workload.seq_len = seq_len;
    plan.model.ffn_size = ffn_size;
    return plan;
  };
  CHECK(check(fp8({}, 32, 96)).empty());
  CHECK_THAT(
      message_of(fp8({}, 24, 96), "fp8"),
      Contains("micro_batch_size(1) * seq_len(24) = 24 tokens") && Contains("nearest seq_len: 32"));
  CHECK_THAT(message_of(fp8({.tp = 2, .sp = true}, 16, 96), "fp8"),
             Contains("/ tp(2) = 8 tokens") && Contains("nearest seq_len: 32"));
  CHECK_THAT(message_of(fp8({.cp = 2}, 48, 96), "fp8"),
             Contains("/ cp(2) = 24 tokens") && Contains("nearest seq_len: 64"));
  // Two sequences of 8 make 16 tokens.
  Plan pair = fp8({}, 8, 96);
  pair.micro_batch_size = 2;
  CHECK(check(pair).empty());
  CHECK_THAT(message_of(fp8({.tp = 4}, 32, 96), "fp8"),
             Contains("the inputs of linear 'mlp_down' (96) over tp(4) leave 24") &&
                 Contains("nearest tp: 2"));
  CHECK_THAT(message_of(fp8({}, 32, 100), "fp8"),
             Contains("linear 'gate_up' (200)") && Contains("use precision 'bf16'"));
  // 4 streams are mixed by 24 numbers, which stay precise.
  Plan streams = fp8({}, 32, 96);
  streams.model.hyper_connections = {.streams = 4};
  CHECK(std::ranges::none_of(check(streams), [](const Violation& v) { return v.rule == "fp8"; }));
}

TEST_CASE("Every preset is lowered or refused by name, never by an internal error",
          "[program][check]") {
  for (const std::string& name : models::preset_names()) {
    CAPTURE(name);
    Plan plan = make_plan(models::load_preset(name), {.tp = 2}, 1);
    const auto violations = check(plan);
    if (violations.empty())
      CHECK_NOTHROW(lower(plan, 0));
    else
      CHECK_THROWS_AS(lower(plan, 0), ConfigError);
  }
}

TEST_CASE("All broken rules are reported together", "[program][check]") {
  Plan plan = make_plan(llama_style(), {.tp = 3, .pp = 5, .dp = 2});
  plan.workload.global_batch_size = 7;
  std::vector<std::string> rules;
  for (const Violation& violation : check(plan)) rules.push_back(violation.rule);
  CHECK(rules == std::vector<std::string>{"heads", "kv-heads", "stages", "batch"});
}

}  // namespace meshplan::program
