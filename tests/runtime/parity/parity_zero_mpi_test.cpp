// ZeRO: ranks that divide optimizer state, gradients or weights among them train as one rank does.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <iostream>

#include "lower/link.hpp"
#include "runtime/os/host_info.hpp"
#include "runtime/parity/parity_job.hpp"
#include "runtime/parity/parity_models.hpp"
#include "runtime/parity/parity_techniques.hpp"
#include "runtime/train/train.hpp"

namespace meshplan::test::parity_zero {
namespace {

constexpr int kSteps = 5;

Plan base_plan(const models::ModelSpec& model) {
  Plan plan = parity_plan(model);
  plan.workload.global_batch_size = 12;  // 3 divides it, too
  // Adam divides by the root of the second moment: with less, what rounding leaves of a gradient
  // that is zero in exact numbers would move weights as far as any other.
  plan.workload.optimizer.epsilon = 1e-6;
  return plan;
}

/// Without the keys' bias, which softmax cancels: its gradient is rounding alone, and Adam's
/// updates of it are as large as any.
models::ModelSpec gpt2_style_without_key_bias() {
  models::ModelSpec model = gpt2_style();
  model.qkv_bias = false;
  return model;
}

models::ModelSpec one_key_head_style() {
  models::ModelSpec model = llama_style();
  model.name = "one-key-head-style";
  model.num_kv_heads = 1;  // held by every tp rank
  return model;
}

struct Case {
  ParallelConfig parallel;
  int shard_group = 0;
  std::vector<int> layers_per_stage = {};
};

Plan plan_of(const models::ModelSpec& model, const Case& one, int stage, int turn) {
  Plan plan = base_plan(model);
  plan.parallel = one.parallel;
  plan.zero_stage = stage;
  plan.zero_shard_group = one.shard_group;
  plan.layers_per_stage = one.layers_per_stage;
  plan.recompute.kind = static_cast<RecomputeKind>(turn % 3);
  if (one.parallel.pp > 1 && turn % 2 == 1) plan.schedule = ScheduleKind::GPipe;
  if (one.parallel.vpp > 1) plan.schedule = ScheduleKind::Interleaved;
  return plan;
}

struct Agreement {
  GradientError gradients;
  GradientError weights;
  double scalars = 0;
  bool holds() const {
    return gradients.relative <= 1e-5 && gradients.small_absolute <= 1e-11 &&
           weights.relative <= 1e-4 && scalars <= 1e-5;
  }
};

Agreement compare(const RunResult& run, const RunResult& reference) {
  return {.gradients = compare_gradients(run.gradients, reference.gradients),
          .weights = compare_gradients(run.weights, reference.weights),
          .scalars = scalar_error(run, reference)};
}

void check_parity(const models::ModelSpec& model, const std::vector<Case>& cases,
                  const std::vector<int>& stages) {
  ParityJob fixture{.steps = kSteps};
  const RunResult reference = fixture.run_alone(base_plan(model));
  REQUIRE(reference.losses.back() < reference.losses.front());
  std::vector<Plan> plans;
  for (const int stage : stages)
    for (const Case& one : cases)
      plans.push_back(plan_of(model, one, stage, static_cast<int>(plans.size())));
  const std::vector<std::size_t> chosen = plans_to_run(plans);
  double worst = 0, worst_weights = 0;
  for (const std::size_t i : chosen) {
    const Plan& plan = plans[i];
    const auto run = fixture.run(plan);
    if (!run) continue;
    const Agreement agreement = compare(*run, reference);
    worst = std::max(worst, agreement.gradients.relative);
    worst_weights = std::max(worst_weights, agreement.weights.relative);
    if (fixture.world->rank() == 0) record_parity("zero", plan, agreement.gradients.relative);
    INFO(model.name << ": " << to_string(plan.parallel) << " zero " << plan.zero_stage
                    << " shard group " << plan.zero_shard_group << ", gradients "
                    << agreement.gradients.relative << " in " << agreement.gradients.worst
                    << ", weights " << agreement.weights.relative << " in "
                    << agreement.weights.worst << ", losses and norms " << agreement.scalars);
    CHECK(agreement.holds());
  }
  if (fixture.world->rank() == 0)
    std::cout << fmt::format(
        "{} with ZeRO: {} plans, worst gradient {:.2e}, worst weights {:.2e}\n", model.name,
        chosen.size(), worst, worst_weights);
}

const std::vector<int> kStages = {1, 2, 3};

}  // namespace

TEST_CASE("with ZeRO a Llama-style model trains as on one rank", "[parity]") {
  check_parity(llama_style(),
               {{{.dp = 2}},
                {{.dp = 3}},  // parts end in the middle of rows
                {{.dp = 6}},
                {{.tp = 2, .dp = 4, .sp = true}},
                {{.tp = 2, .pp = 2, .dp = 2, .sp = true}},
                {{.pp = 2, .dp = 4}, 2, {1, 3}},
                {{.dp = 6}, 3},
                {{.cp = 2, .dp = 2}},
                {{.pp = 2, .vpp = 2, .dp = 2}}},
               kStages);
}

TEST_CASE("with ZeRO a GPT-2-style model trains as on one rank", "[parity]") {
  check_parity(gpt2_style_without_key_bias(),
               {{{.dp = 4}},
                {{.tp = 4, .dp = 2}},
                {{.tp = 2, .dp = 4, .sp = true}, 2},
                {{.pp = 2, .dp = 2}},  // the embedding's copies are tied over the stages
                {{.tp = 2, .pp = 2, .dp = 2}},
                {{.pp = 2, .dp = 4}, 2, {3, 1}}},
               kStages);
}

TEST_CASE("with ZeRO, key/value heads on several ranks are counted once", "[parity]") {
  check_parity(one_key_head_style(), {{{.tp = 2, .dp = 2}}, {{.tp = 4, .dp = 2, .sp = true}}},
               kStages);
}

TEST_CASE("with ZeRO experts are divided among those that hold the same", "[parity]") {
  check_parity(mixtral_style(),
               {{{.dp = 4, .ep = 2}},
                {{.dp = 4, .ep = 4}},  // none holds the same
                {{.dp = 6, .ep = 2}, 3},
                {{.tp = 2, .dp = 2, .ep = 2, .sp = true}},
                {{.pp = 2, .dp = 4, .ep = 2}}},
               kStages);
}

TEST_CASE("with ZeRO a DeepSeek-style model trains as on one rank", "[parity][latent]") {
  check_parity(deepseek_style(),
               {{{.dp = 2}},
                {{.tp = 2, .dp = 2, .sp = true}},
                {{.dp = 4, .ep = 2}, 2},
                {{.pp = 2, .dp = 2, .ep = 2}}},
               kStages);
}

// ---------------------------------------------------------------- the same bits

namespace {

/// Without clipping nothing but the sum over the ranks has an order: that of the ranks, in a
/// reduce-scatter as in an all-reduce of few ranks. One micro-batch, so that stages 2 and 3 add up
/// none.
Plan plan_for_equal_bits(const models::ModelSpec& model, DType precision) {
  Plan plan = base_plan(model);
  plan.workload.precision = precision;
  plan.workload.optimizer.clip_norm = 0;
  plan.workload.global_batch_size = 8;
  plan.parallel = {.dp = 4};
  plan.micro_batch_size = 2;
  return plan;
}

}  // namespace

TEST_CASE("who owns what changes no bit of the weights", "[parity]") {
  ParityJob fixture{.steps = kSteps};
  for (const models::ModelSpec& model : {llama_style(), gpt2_style(), deepseek_style()})
    for (const DType precision : {DType::F32, DType::BF16}) {
      Plan plan = plan_for_equal_bits(model, precision);
      const auto whole = fixture.run(plan);
      for (const int stage : kStages) {
        plan.zero_stage = stage;
        const auto divided = fixture.run(plan);
        if (!whole) continue;
        INFO(model.name << " " << name_of(precision) << " zero " << stage);
        CHECK(divided->losses == whole->losses);
        CHECK(divided->weights == whole->weights);
      }
    }
}

// ---------------------------------------------------------------- seeded bugs

namespace {

using program::FlatCollectiveOp;
using program::Program;
using program::StepOp;
using program::StepWork;

template <class Change>
void for_each_step_operation(Program& program, const Change& change) {
  for (program::Operation& operation : program.step_operations) change(operation);
  program::link(program);
}

/// The update begins one element into what the rank owns.
void shard_off_by_one(Program& program) {
  for_each_step_operation(program, [&](program::Operation& operation) {
    auto* step = std::get_if<StepOp>(&operation.work);
    if (step == nullptr || step->work != StepWork::OptimizerUpdate) return;
    const program::Bucket& bucket = program.buckets[static_cast<std::size_t>(*step->bucket)];
    step->range.begin = std::max(step->range.begin, bucket.range.begin + 1);
  });
}

/// Every rank counts the whole range, which others have summed up as well.
void norm_counted_by_all(Program& program) {
  for_each_step_operation(program, [&](program::Operation& operation) {
    auto* step = std::get_if<StepOp>(&operation.work);
    if (step == nullptr || step->work != StepWork::SquaredNorm) return;
    step->bucket.reset();
    step->first_replica_only = false;
  });
}

void norm_counted_by_replicas(Program& program) {
  for_each_step_operation(program, [&](program::Operation& operation) {
    auto* step = std::get_if<StepOp>(&operation.work);
    if (step != nullptr && step->work == StepWork::SquaredNorm) step->first_replica_only = false;
  });
}

/// Removes the last instance of a collective of this kind over gradients or weights.
void remove_last(Program& program, program::Collective kind) {
  const auto matches = [&](const program::OperationInstance& instance) {
    const auto* flat =
        std::get_if<FlatCollectiveOp>(&program::operation_of(program, instance).work);
    return flat != nullptr && flat->bucket && flat->collective.collective == kind;
  };
  auto found = program.instances.end();
  for (auto it = program.instances.begin(); it != program.instances.end(); ++it)
    if (matches(*it)) found = it;
  if (found != program.instances.end()) program.instances.erase(found);
  program::link(program);
}
void last_bucket_not_reduced(Program& program) {
  remove_last(program, program::Collective::ReduceScatter);
}
void last_bucket_not_gathered(Program& program) {
  remove_last(program, program::Collective::AllGather);
}
void replicas_not_summed(Program& program) {
  remove_last(program, program::Collective::AllReduce);
}

void only_the_last_micro_batch(Program& program) {
  for (program::OperationInstance& instance : program.instances) {
    const auto* step = std::get_if<StepOp>(&program::operation_of(program, instance).work);
    if (step != nullptr && step->work == StepWork::AccumulateGradients) instance.accumulate = false;
  }
}

/// Layers read the slot of the other unit.
void weights_of_another_unit(Program& program) {
  for (program::OperationInstance& instance : program.instances)
    if (instance.layer) instance.weight_slot = 1 - instance.weight_slot;
  program::link(program);
}

struct SeededBug {
  std::string name;
  int stage = 1;
  Mutation mutate;
  int shard_group = 0;
};

std::vector<SeededBug> seeded_bugs() {
  return {
      {"update off by one element", 1, shard_off_by_one},
      {"update off by one element", 3, shard_off_by_one},
      {"norm counted by all ranks", 1, norm_counted_by_all},
      {"norm counted by the replicas of a part", 1, norm_counted_by_replicas, 2},
      {"last bucket not reduced", 1, last_bucket_not_reduced},
      {"last micro-batch of a unit not reduced", 2, last_bucket_not_reduced},
      {"last bucket not gathered", 1, last_bucket_not_gathered},
      {"last unit not gathered", 3, last_bucket_not_gathered},
      {"replicas of a part not summed", 1, replicas_not_summed, 2},
      {"only the last micro-batch counts", 2, only_the_last_micro_batch},
      {"weights of another unit", 3, weights_of_another_unit},
  };
}

}  // namespace

TEST_CASE("each seeded bug in ZeRO breaks parity", "[parity]") {
  ParityJob fixture{.steps = kSteps};
  // So long a gradient that clipping shows a wrong norm in the weights, too.
  const RunResult reference = fixture.run_alone(base_plan(llama_style()));
  for (const SeededBug& bug : seeded_bugs()) {
    Plan plan = plan_of(llama_style(), {{.dp = 4}, bug.shard_group}, bug.stage, 0);
    const auto right = fixture.run(plan);
    const auto wrong = fixture.run(plan, bug.mutate);
    INFO(bug.name << ", zero " << bug.stage);
    if (right) CHECK(compare(*right, reference).holds());
    if (wrong) CHECK_FALSE(compare(*wrong, reference).holds());
  }
}

// ---------------------------------------------------------------- memory

TEST_CASE("resident memory falls as planned", "[parity]") {
  ParityJob fixture{.steps = kSteps};
  models::ModelSpec model = llama_style();
  model.num_layers = 8;
  model.hidden_size = 256;
  model.ffn_size = 768;
  model.head_size = 32;
  Plan plan = base_plan(model);
  plan.parallel = {.dp = 4};
  const auto group = fixture.first_ranks(plan);
  if (group == nullptr) return;
  const auto measure = [&](int stage, double& planned) {
    plan.zero_stage = stage;
    const double before = runtime::resident_bytes();
    runtime::HostDevice device(*fixture.backend);
    runtime::Trainer trainer(program::lower(plan, 0), std::nullopt, *group, device, 7, nullptr);
    const auto batch = parity_batch(plan, trainer.groups().coordinates());
    trainer.train_step(batch, {.optimizer_step = 1, .learning_rate = 1e-3});
    planned = static_cast<double>(trainer.program().memory.total_bytes());
    return runtime::resident_bytes() - before;
  };
  double planned_whole = 0;
  measure(0, planned_whole);  // what libraries take once
  const double whole = measure(0, planned_whole);
  for (const int stage : kStages) {
    double planned = 0;
    const double measured = measure(stage, planned);
    INFO("zero " << stage << ": planned " << planned << " of " << planned_whole << ", measured "
                 << measured << " of " << whole);
    CHECK(measured == Approx(planned).epsilon(0.1));
    CHECK(whole - measured == Approx(planned_whole - planned).epsilon(0.1));
  }
}

}  // namespace meshplan::test::parity_zero
