// What `meshplan check` answers: golden cases out of what users of training stacks report.
#include "planner/check/check.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "check/changes.hpp"
#include "core/error.hpp"
#include "core/units.hpp"
#include "models/counts.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "support/random.hpp"

namespace meshplan::planner {
namespace {

struct Shape {
  std::string model;
  program::ParallelConfig parallel;
  std::int64_t seq_len = 4096;
  std::int64_t global_batch_size = 64;
};

CheckRequest request_of(const Shape& shape, const std::string& cluster = "dgx-h100") {
  CheckRequest request;
  request.plan.model = models::load_preset(shape.model);
  request.plan.model.mtp_layers = 0;
  request.plan.parallel = shape.parallel;
  request.plan.workload = {.seq_len = shape.seq_len,
                           .global_batch_size = shape.global_batch_size,
                           .precision = DType::BF16};
  if (shape.parallel.vpp > 1) request.plan.schedule = program::ScheduleKind::Interleaved;
  request.cluster = sim::with_ranks(sim::load_cluster_preset(cluster), shape.parallel.world_size());
  return request;
}

/// By the rules of a target, priced as its runs.
void ask(CheckRequest& request, const std::string& target) {
  request.target = target;
  request.plan = program::on_stack(request.plan, rules_for(target).software);
}

bool has_change(const std::vector<PricedChange>& changes, const std::string& words) {
  return std::ranges::any_of(changes,
                             [&](const PricedChange& change) { return change.words == words; });
}

/// Fastest first, each as the estimator says, and each within memory.
void check_order(const std::vector<PricedChange>& changes, const CheckRequest& request,
                 const std::string& software) {
  sim::Estimator estimator(*request.cluster, software);
  double last = 0;
  for (const PricedChange& change : changes) {
    INFO(change.words);
    CHECK(change.step.step_time_s >= last);
    last = change.step.step_time_s;
    CHECK(estimator.estimate(change.plan).step_time_s == Approx(change.step.step_time_s));
    CHECK(change.plan.workload == request.plan.workload);  // the same is trained
    CHECK(change.plan.model == request.plan.model);
    CHECK(change.plan != request.plan);
  }
}

}  // namespace

TEST_CASE("Memory by stage is what simulate shows", "[planner][check]") {
  for (const Shape& shape : {Shape{"llama3-8b", {.tp = 2, .pp = 2, .dp = 2, .sp = true}, 4096, 16},
                             Shape{"llama3-8b", {.tp = 2, .pp = 2, .vpp = 2, .dp = 2}, 4096, 64},
                             Shape{"tiny-moe", {.tp = 1, .pp = 1, .dp = 4, .ep = 2}, 128, 32}}) {
    CheckRequest request = request_of(shape);
    const CheckResult result = check_plan(request);
    const sim::MemoryReport played = sim::play_plan(request.plan, *request.cluster).result.memory;
    REQUIRE(result.stages.size() == played.stages.size());
    for (std::size_t stage = 0; stage < played.stages.size(); ++stage) {
      CHECK(result.stages[stage].bytes == played.stages[stage].total());
      CHECK(result.stages[stage].capacity_bytes == played.stages[stage].capacity);
    }
    CHECK(result.fits() == played.fits());
  }
}

TEST_CASE("Without a pipeline a changed plan has no chunks", "[planner][check]") {
  CheckRequest request =
      request_of({"llama3-70b", {.tp = 8, .pp = 2, .vpp = 2, .dp = 4, .sp = true}, 8192, 32});
  ask(request, "torchtitan");
  request.plan.zero_stage = 3;
  request.plan.recompute.kind = program::RecomputeKind::Full;
  program::Plan plain = request.plan;
  plain.parallel = {.tp = 8, .dp = 8, .sp = true};
  plain.schedule = program::ScheduleKind::OneFOneB;
  for (const Change& change : changes_of(request.plan, *request.cluster))
    if (change.words == "pp 2 -> 1, dp 4 -> 8") {
      CHECK(changed(request.plan, change) == plain);
      CHECK(std::ranges::count(change.settings, "schedule=1f1b") == 1);
    }
  // Of one stage torchtitan gathers weights in every micro-batch: that is slower here.
  CHECK_FALSE(has_change(check_plan(request).faster, "pp 2 -> 1, dp 4 -> 8"));
}

TEST_CASE("Memory by stage of another stack peaks as its prediction does", "[planner][check]") {
  CheckRequest request =
      request_of({"llama3-70b", {.tp = 8, .pp = 4, .dp = 2, .sp = true}, 8192, 64});
  ask(request, "megatron-lm");
  const CheckResult result = check_plan(request);
  REQUIRE(result.stages.size() == 4);
  REQUIRE(result.step);
  CHECK(result.fullest()->bytes == Approx(result.step->peak_memory_bytes));
  CHECK(result.fullest()->stage == result.step->largest_stage);
}

TEST_CASE("A plan that a rule refuses is not priced", "[planner][check]") {
  CheckRequest request =
      request_of({"llama3-70b", {.tp = 8, .pp = 4, .dp = 2, .sp = true}, 8192, 63});
  ask(request, "megatron-lm");
  const CheckResult result = check_plan(request);
  CHECK_FALSE(result.valid());
  CHECK(result.stages.empty());
  CHECK(result.not_predicted == "a rule refuses the plan");
}

TEST_CASE("Without a cluster the rules alone answer", "[planner][check]") {
  CheckRequest request = request_of({"llama3-8b", {.tp = 4, .dp = 2}, 4096, 64});
  request.cluster.reset();
  for (const std::string& target : rule_targets()) {
    ask(request, target);
    const CheckResult result = check_plan(request);
    CHECK(result.valid());
    CHECK(result.not_predicted.find("no cluster") != std::string::npos);
  }
}

TEST_CASE("Sizes beyond all limits are refused, not computed with", "[planner][check]") {
  CheckRequest request = request_of({"llama3-8b", {.tp = 4, .dp = 2}, 4096, 64});
  request.cluster.reset();
  ask(request, "megatron-lm");
  request.plan.parallel = {.tp = 1 << 20, .cp = 1 << 20, .pp = 1 << 20, .dp = 1 << 20};
  CHECK_THROWS_AS(check_plan(request), ConfigError);
  request.plan.parallel = {.tp = 0};
  CHECK_THROWS_AS(check_plan(request), ConfigError);
}

// Reported against estimators that spread memory evenly: the fullest of uneven stages needs a third
// more than the mean.
TEST_CASE("Uneven stages: each has its own layers' memory", "[planner][check]") {
  CheckRequest request =
      request_of({"llama3-8b", {.tp = 2, .pp = 4, .dp = 1, .sp = true}, 4096, 8});
  const auto even = check_plan(request).stages;
  request.plan.layers_per_stage = {4, 12, 12, 4};
  const auto uneven = check_plan(request).stages;
  REQUIRE(uneven.size() == 4);
  // Weights and gradients in 2 bytes and 4, master weights and moments in 12: of 8 layers more or
  // less than stages 1 and 2 have evenly.
  const models::ModelGraph graph = models::build_graph(request.plan.model);
  const double layer = static_cast<double>(models::parameter_count(graph.kinds.front())) / 2 * 18;
  CHECK(uneven[1].bytes - even[1].bytes > 4 * layer * 0.98);
  CHECK(even[0].bytes - uneven[0].bytes > 4 * layer * 0.98);
  double mean = 0;
  for (const StageNeed& stage : uneven) mean += stage.bytes / 4;
  const double fullest = std::ranges::max_element(uneven, {}, &StageNeed::bytes)->bytes;
  CHECK(fullest > 1.3 * mean);
}

// Reported as "full recompute raises memory": backward of a stage's only layer needs all that the
// layer saves at once, which is more than selective recompute keeps.
TEST_CASE("Full recompute of a stage's only layer is no way to make it fit", "[planner][check]") {
  CheckRequest request = request_of({"gemma2-2b", {.tp = 1, .pp = 4, .dp = 2}, 4096, 64});
  request.plan.model.num_layers = 4;
  request.plan.micro_batch_size = 4;
  const auto last_stage = [&](program::RecomputeKind kind) {
    request.plan.recompute.kind = kind;
    const CheckResult result = check_plan(request);
    REQUIRE(result.stages.size() == 4);
    CHECK(result.fullest()->stage == 3);  // the head's
    return result.stages[3].bytes;
  };
  const double selective = last_stage(program::RecomputeKind::Selective);
  const double full = last_stage(program::RecomputeKind::Full);
  const double none = last_stage(program::RecomputeKind::None);
  CHECK(selective < full);
  CHECK(full < none);
  // A device in between.
  request.plan.recompute.kind = program::RecomputeKind::None;
  request.cluster->device.memory_gib = (selective + full) / 2 / kGib;
  request.memory_reserve = 0;
  const CheckResult result = check_plan(request);
  CHECK_FALSE(result.fits());
  CHECK(has_change(result.fitting, "recompute none -> selective"));
  CHECK_FALSE(has_change(result.fitting, "recompute none -> full"));
  // And under full recompute the lighter kind is both smaller and faster.
  request.plan.recompute.kind = program::RecomputeKind::Full;
  CHECK(has_change(check_plan(request).fitting, "recompute full -> selective"));
}

// Reported as "experts run out of memory although the model's active part is small".
TEST_CASE("Experts that do not fit are divided over more ranks", "[planner][check]") {
  CheckRequest request =
      request_of({"mixtral-8x7b", {.tp = 1, .pp = 1, .dp = 32, .ep = 2}, 2048, 64});
  request.plan.zero_stage = 1;
  ask(request, "megatron-lm");
  const CheckResult result = check_plan(request);
  REQUIRE(result.valid());
  // 4 experts of 32 layers have 3 * 4096 * 14336 weights each: in bf16 with gradients in bf16, and
  // 12 bytes of state that 16 ranks divide.
  const double weights = 32.0 * 4 * 3 * 4096 * 14336;
  CHECK(result.fullest()->bytes > weights * (2 + 2 + 12.0 / 16));
  CHECK_FALSE(result.fits());
  REQUIRE_FALSE(result.fitting.empty());
  CHECK(result.fitting.front().words == "ep 2 -> 8");
  CHECK(result.fitting.front().settings == std::vector<std::string>{"parallel.ep=8"});
  CHECK_FALSE(has_change(result.fitting, "ep 2 -> 1"));
  check_order(result.fitting, request, "megatron-core");
  for (const PricedChange& change : result.fitting) {
    CHECK(change.step.fits(request.memory_reserve));
    CHECK(check_plan({.plan = change.plan, .target = "megatron-lm", .cluster = request.cluster})
              .fits());
  }
}

TEST_CASE("What fits is offered, the cheapest first, and as two changes where one is too little",
          "[planner][check]") {
  CheckRequest request = request_of({"llama3-8b", {.tp = 1, .pp = 1, .dp = 8}, 8192, 64});
  request.plan.micro_batch_size = 4;
  const CheckResult result = check_plan(request);
  CHECK_FALSE(result.fits());
  REQUIRE_FALSE(result.fitting.empty());
  check_order(result.fitting, request, "meshplan");
  // A device so small that no single change is enough.
  for (double gib = 80; gib > 8; gib *= 0.9) {
    request.cluster->device.memory_gib = gib;
    const CheckResult smaller = check_plan(request);
    const bool pairs =
        !smaller.fitting.empty() && smaller.fitting.front().words.find("; ") != std::string::npos;
    if (!pairs) continue;
    for (const PricedChange& change : smaller.fitting) {
      CHECK(change.words.find("; ") != std::string::npos);
      CHECK(change.step.fits(request.memory_reserve));
      CHECK(change.settings.size() >= 2);
    }
    SUCCEED("pairs at " << gib << " GiB");
    return;
  }
  FAIL("no size at which two changes are needed");
}

TEST_CASE("What is faster is offered with the target's schedules alone", "[planner][check]") {
  CheckRequest request =
      request_of({"llama3-8b", {.tp = 2, .pp = 4, .dp = 2, .sp = true}, 4096, 16});
  request.plan.recompute.kind = program::RecomputeKind::Full;
  request.plan.zero_stage = 1;
  const CheckResult ours = check_plan(request);
  REQUIRE(ours.fits());
  check_order(ours.faster, request, "meshplan");
  CHECK(has_change(ours.faster, "recompute full -> none"));
  CHECK(has_change(ours.faster, "schedule 1f1b vpp1 -> zb-v vpp2"));
  for (const PricedChange& change : ours.faster)
    CHECK(change.step.step_time_s * (1 + kWorthIt) < ours.step->step_time_s);
  ask(request, "megatron-lm");
  const CheckResult megatron = check_plan(request);
  REQUIRE(megatron.valid());
  check_order(megatron.faster, request, "megatron-core");
  CHECK(has_change(megatron.faster, "recompute full -> none"));
  CHECK(has_change(megatron.faster, "schedule 1f1b vpp1 -> interleaved vpp2"));
  for (const PricedChange& change : megatron.faster) {
    CHECK(change.plan.schedule != program::ScheduleKind::ZbV);
    for (const Judgement& judgement : judge(rules_for("megatron-lm"), change.plan))
      CHECK_FALSE(judgement.refuses());
  }
}

TEST_CASE("What this version cannot price it says", "[planner][check]") {
  CheckRequest request =
      request_of({"llama3-8b", {.tp = 2, .pp = 2, .dp = 2, .sp = true}, 4096, 16});
  ask(request, "megatron-lm");
  request.plan.workload.optimizer.kind = program::OptimizerKind::Sgd;
  const CheckResult result = check_plan(request);
  CHECK(result.valid());
  CHECK(result.stages.empty());
  CHECK(result.not_predicted.find("SGD") != std::string::npos);
}

TEST_CASE("Changes turn what their settings say", "[planner][check]") {
  CheckRequest request =
      request_of({"mixtral-8x7b", {.tp = 2, .pp = 4, .dp = 4, .ep = 4, .sp = true}});
  request.plan.micro_batch_size = 4;
  request.plan.layers_per_stage = {7, 9, 9, 7};
  std::vector<std::string> words;
  for (const Change& change : changes_of(request.plan, *request.cluster)) {
    words.push_back(change.words);
    const program::Plan other = changed(request.plan, change);
    INFO(change.words);
    CHECK(other != request.plan);
    CHECK_FALSE(change.settings.empty());
    CHECK(other.parallel.world_size() == request.plan.parallel.world_size());
    const bool same_stages = other.parallel.pp * other.parallel.vpp == 4;
    CHECK(other.layers_per_stage.empty() == !same_stages);
  }
  std::vector<std::string> sorted = words;
  std::ranges::sort(sorted);
  CHECK(std::ranges::adjacent_find(sorted) == sorted.end());
  for (const char* expected :
       {"recompute none -> full", "micro_batch_size 4 -> 1", "micro_batch_size 4 -> 2",
        "zero_stage 0 -> 1", "without sp", "pp 4 -> 8, dp 4 -> 2", "tp 2 -> 1, dp 4 -> 8",
        "ep 4 -> 8", "optimizer in the host's memory"}) {
    INFO(expected);
    CHECK(std::ranges::find(words, expected) != words.end());
  }
}

TEST_CASE("Whatever is asked is answered, for every target", "[planner][check]") {
  testing::Random random(20261127);
  const auto one_of = [&](std::initializer_list<int> values) {
    return values.begin()[random.below(values.size())];
  };
  const char* const kModels[] = {"tiny-llama",  "tiny-moe",  "gpt2-124m",         "deepseek-v3",
                                 "gpt-oss-20b", "bert-base", "qwen3-next-80b-a3b"};
  const std::vector<std::string> targets = rule_targets();
  int predicted = 0, refused = 0;
  for (int i = 0; i < 1000; ++i) {
    CheckRequest request;
    program::Plan& plan = request.plan;
    plan.model = models::load_preset(kModels[random.below(std::size(kModels))]);
    plan.parallel = {.tp = one_of({1, 1, 1, 2, 2, 3, 4}),
                     .cp = one_of({1, 1, 1, 1, 1, 2, 3}),
                     .pp = one_of({1, 1, 1, 2, 2, 3, 64}),
                     .vpp = one_of({1, 1, 1, 1, 1, 1, 2, 5}),
                     .dp = one_of({1, 2, 4, 4, 5}),
                     .ep = one_of({1, 1, 1, 1, 2, 3}),
                     .etp = one_of({1, 1, 2}),
                     .sp = random.one_in(2)};
    plan.workload = {.seq_len = one_of({64, 128, 128, 128, 100, 1}),
                     .global_batch_size = one_of({16, 64, 64, 64, 60, 1}),
                     .precision = DType::BF16};
    plan.micro_batch_size = one_of({1, 1, 1, 2, 7});
    plan.zero_stage = one_of({0, 1, 2, 3});
    plan.zero_shard_group = one_of({0, 0, 2});
    plan.schedule =
        std::vector{program::ScheduleKind::OneFOneB, program::ScheduleKind::Interleaved,
                    program::ScheduleKind::GPipe, program::ScheduleKind::ZbV}[random.below(4)];
    plan.context_parallel =
        std::vector{program::ContextMethod::Ring, program::ContextMethod::Ulysses}[random.below(2)];
    plan.recompute.kind =
        std::vector{program::RecomputeKind::None, program::RecomputeKind::Selective,
                    program::RecomputeKind::Full}[random.below(3)];
    if (random.one_in(8)) plan.layers_per_stage = {1, 2, 3};
    if (random.one_in(8)) plan.recompute.layers_per_stage = {1};
    const int ranks = random.one_in(8) ? 8 : plan.parallel.world_size();
    if (ranks < 8 || ranks % 8 == 0)  // whole nodes
      request.cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), ranks);
    ask(request, targets[random.below(targets.size())]);
    const CheckResult result = check_plan(request);
    CHECK(result.judgements.size() == rules_for(request.target).rules.size());
    CHECK(result.stages.empty() != result.not_predicted.empty());
    predicted += !result.stages.empty();
    refused += !result.valid();
  }
  CHECK(predicted > 20);
  CHECK(refused > 20);
}

}  // namespace meshplan::planner
