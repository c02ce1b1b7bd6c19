// Parity in 16-bit precisions, and that a step whose fp16 gradients overflow leaves no trace.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <iostream>
#include <limits>
#include <map>

#include "bind/gradient_scale.hpp"
#include "core/hash.hpp"
#include "cpu_backend.hpp"
#include "runtime/parity/parity_models.hpp"
#include "runtime/parity/parity_precision.hpp"
#include "runtime/parity/parity_techniques.hpp"

namespace meshplan::test::parity_precision {
namespace {

std::vector<Plan> half_plans(const models::ModelSpec& model, DType precision) {
  std::vector<Plan> plans;
  for (const ParallelConfig& parallel :
       {ParallelConfig{.tp = 2}, ParallelConfig{.tp = 4}, ParallelConfig{.tp = 2, .sp = true},
        ParallelConfig{.pp = 2}, ParallelConfig{.pp = 4}, ParallelConfig{.dp = 2},
        ParallelConfig{.dp = 8}, ParallelConfig{.tp = 2, .pp = 2, .dp = 2, .sp = true}}) {
    Plan plan = base_plan(model);
    plan.workload.precision = precision;
    plan.parallel = parallel;
    plan.schedule = plans.size() % 2 == 0 ? ScheduleKind::OneFOneB : ScheduleKind::GPipe;
    if (parallel.pp == 1) plan.schedule = ScheduleKind::OneFOneB;
    plan.recompute.kind = static_cast<RecomputeKind>(plans.size() % 3);
    plans.push_back(plan);
  }
  return plans;
}

void check_half_parity(const models::ModelSpec& model, DType precision) {
  Fixture fixture;
  Plan plan = base_plan(model);
  const RunResult fp32 = fixture.run_alone(plan);
  plan.workload.precision = precision;
  const RunResult reference = fixture.run_alone(plan);
  double worst = 0;
  const std::vector<Plan> plans = half_plans(model, precision);
  for (const std::size_t i : plans_to_run(plans)) {
    const Plan& one = plans[i];
    const auto run = fixture.run(one);
    if (!run) continue;
    const double tolerance = half_tolerance(one);
    const GradientError error = compare_gradients(*run, reference, kSmallInHalf);
    const GradientError to_fp32 = compare_gradients(*run, fp32, kSmallInHalf);
    worst = std::max(worst, error.relative / tolerance);
    if (fixture.world->rank() == 0) record_parity("precision", one, error.relative);
    INFO(model.name << " in " << name_of(precision) << ": " << describe(one) << ", worst gradient "
                    << error.worst << " by " << error.relative << ", against fp32 " << to_fp32.worst
                    << " by " << to_fp32.relative << ", tolerance " << tolerance);
    CHECK(error.relative <= tolerance);
    CHECK(error.small_absolute <= tolerance * kSmallInHalf);
    CHECK(to_fp32.relative <= tolerance);
    CHECK(run->gradient_norms.front() == Approx(fp32.gradient_norms.front()).epsilon(tolerance));
    // The loss of untrained weights: logits below 1 in magnitude, averaged over 128 tokens.
    CHECK(run->losses.front() ==
          Approx(reference.losses.front()).epsilon(unit_roundoff(precision)));
    CHECK(run->losses.back() < run->losses.front());
  }
  if (fixture.world->rank() == 0)
    std::cout << fmt::format("{} in {}: worst gradient error {:.2f} of the tolerance\n", model.name,
                             name_of(precision), worst);
}

}  // namespace

TEST_CASE("in bf16 plans give the gradients of one rank, to the format's precision", "[parity]") {
  check_half_parity(llama_style(), DType::BF16);
  check_half_parity(gpt2_style(), DType::BF16);
}

TEST_CASE("in fp16 plans give the gradients of one rank, to the format's precision", "[parity]") {
  check_half_parity(llama_style(), DType::F16);
  check_half_parity(gpt2_style(), DType::F16);
}

namespace {

struct DividedCase {
  models::ModelSpec model;
  ParallelConfig parallel;
  int zero_stage = 0;
  int shard_group = 0;
  program::ContextMethod method = program::ContextMethod::AllGather;
};

/// What divides state or sequences, in fp16 with a scaled loss.
std::vector<DividedCase> divided_cases() {
  using program::ContextMethod;
  return {{llama_style(), {.dp = 4}, 1},
          {llama_style(), {.dp = 4}, 2},
          {llama_style(), {.dp = 4}, 3},
          {llama_style(), {.dp = 4}, 3, 2},
          {gpt2_style(), {.tp = 2, .pp = 2, .dp = 2, .sp = true}, 2},
          {llama_style(), {.cp = 2}},
          {llama_style(), {.cp = 2, .dp = 2}, 3, 0, ContextMethod::Ring},
          {llama_style(), {.cp = 2, .pp = 2, .dp = 2}, 1, 0, ContextMethod::Ulysses}};
}

/// Every token goes to every expert, so that rounding does not change who is chosen.
models::ModelSpec all_chosen(models::ModelSpec model) {
  model.name += " to all";
  model.moe->top_k = model.moe->num_experts;
  model.moe->router.num_groups = model.moe->router.top_groups = 1;
  return model;
}

std::vector<DividedCase> expert_cases() {
  return {{mixtral_style(), {.dp = 2, .ep = 2}},
          {mixtral_style(), {.dp = 8, .ep = 4}, 1},
          {mixtral_style(), {.dp = 4, .ep = 2}, 2},
          {mixtral_style(), {.dp = 4, .ep = 2}, 3, 2},
          {all_chosen(mixtral_style()), {.dp = 4, .ep = 2, .etp = 2}},
          {all_chosen(mixtral_style()), {.tp = 2, .dp = 2, .ep = 2, .etp = 2, .sp = true}},
          {shared_experts_style(), {.pp = 2, .dp = 2, .ep = 2}},
          {deepseek_style(), {.dp = 2, .ep = 2}},
          {all_chosen(deepseek_style()), {.tp = 2, .pp = 2, .dp = 2, .ep = 4, .sp = true}},
          {balanced_style(), {.dp = 4, .ep = 4}},
          {all_chosen(balanced_style()), {.tp = 2, .dp = 2, .ep = 2, .sp = true}},
          {capacity_style(), {.dp = 2, .ep = 2}},
          {capacity_style(), {.dp = 4, .ep = 2}, 1}};
}

Plan plan_of(const DividedCase& one) {
  Plan plan = base_plan(one.model);
  plan.workload.precision = DType::F16;
  plan.parallel = one.parallel;
  plan.zero_stage = one.zero_stage;
  plan.zero_shard_group = one.shard_group;
  plan.context_parallel = one.method;
  plan.expert_imbalance = 8;  // an untrained router may send any rank everything
  return plan;
}

Plan on_one_rank(Plan plan) {
  plan.parallel = {};
  plan.zero_stage = plan.zero_shard_group = 0;
  return plan;
}

std::string describe(const DividedCase& one) {
  return fmt::format("{} {} zero {}/{}", one.model.name, to_string(one.parallel), one.zero_stage,
                     one.shard_group);
}

}  // namespace

TEST_CASE("fp16 with ZeRO and cp gives the gradients of one rank", "[parity]") {
  Fixture fixture;
  for (const DividedCase& one : divided_cases()) {
    const RunResult reference = fixture.run_alone(on_one_rank(plan_of(one)));
    const auto run = fixture.run(plan_of(one));
    if (!run) continue;
    const double tolerance = half_tolerance(plan_of(one));
    const GradientError error = compare_gradients(*run, reference, kSmallInHalf);
    INFO(describe(one) << ", worst gradient " << error.worst << " by " << error.relative
                       << ", tolerance " << tolerance);
    CHECK(error.relative <= tolerance);
    CHECK(error.small_absolute <= tolerance * kSmallInHalf);
    CHECK(run->losses.front() ==
          Approx(reference.losses.front()).epsilon(unit_roundoff(DType::F16)));
    CHECK(run->losses.back() < run->losses.front());
  }
}

namespace {

/// Compares the gradients of a run in fp16 with those of one rank in fp16, and in fp32.
double worst_of_tolerance(const RunResult& run, const RunResult& reference, const RunResult& fp32,
                          const DividedCase& one) {
  const double tolerance = half_tolerance(plan_of(one));
  const auto compare = [&](const RunResult& expected) {
    const GradientError error = compare_gradients(run, expected, kSmallInHalf);
    INFO(describe(one) << ": worst gradient " << error.worst << " by " << error.relative
                       << ", tolerance " << tolerance);
    return std::max(error.relative, error.small_absolute / kSmallInHalf) / tolerance;
  };
  return std::max(compare(reference), compare(fp32));
}

/// Seeded: the router's losses are not in the gradients' units.
class UnscaledRouterLosses final : public kernels::CpuBackend {
 public:
  explicit UnscaledRouterLosses(double tokens)
      : CpuBackend(1, kernels::best_cpu_isa()), scale_(runtime::gradient_scale_of(tokens)) {}
  void run(const kernels::Operation& operation) override {
    kernels::Operation wrong = operation;
    if (auto* router = std::get_if<kernels::RouterBackward>(&wrong)) router->loss_scale = &scale_;
    CpuBackend::run(wrong);
  }

 private:
  float scale_;
};

}  // namespace

TEST_CASE("fp16 with experts gives the gradients and router losses of one rank",
          "[parity][experts]") {
  Fixture fixture;
  std::map<std::string, std::pair<RunResult, RunResult>> references;  // by model: fp16, fp32
  for (const DividedCase& one : expert_cases()) {
    Plan alone = on_one_rank(plan_of(one));
    const auto [entry, fresh] = references.try_emplace(one.model.name);
    auto& [reference, fp32] = entry->second;
    if (fresh) {
      reference = fixture.run_alone(alone);
      alone.workload.precision = DType::F32;
      fp32 = fixture.run_alone(alone);
    }
    const auto run = fixture.run(plan_of(one));
    if (!run) continue;
    INFO(describe(one));
    REQUIRE(run->expert_loads.front() == reference.expert_loads.front());
    REQUIRE(run->expert_loads.front() == fp32.expert_loads.front());
    const double worst = worst_of_tolerance(*run, reference, fp32, one);
    if (fixture.world->rank() == 0) {
      record_parity("precision", plan_of(one), compare_gradients(*run, reference).relative);
      std::cout << fmt::format("{}: worst gradient {:.2f} of the tolerance\n", describe(one),
                               worst);
    }
    CHECK(worst <= 1);
    const double rounding = unit_roundoff(DType::F16);
    CHECK(run->losses.front() == Approx(reference.losses.front()).epsilon(rounding));
    CHECK(run->balance_losses.front() ==
          Approx(fp32.balance_losses.front()).epsilon(rounding).margin(0));
    CHECK(run->z_losses.front() == Approx(fp32.z_losses.front()).epsilon(4 * rounding).margin(0));
    CHECK(run->losses.back() < run->losses.front());
  }
}

TEST_CASE("router losses that are not scaled as the loss is are seen", "[parity][experts]") {
  Fixture fixture;
  const DividedCase one{balanced_style(), {.dp = 4, .ep = 4}};
  Plan alone = on_one_rank(plan_of(one));
  const RunResult reference = fixture.run_alone(alone);
  alone.workload.precision = DType::F32;
  const RunResult fp32 = fixture.run_alone(alone);
  const program::Workload& workload = alone.workload;
  UnscaledRouterLosses wrong(static_cast<double>(workload.global_batch_size * workload.seq_len));
  const auto run = fixture.run(plan_of(one), {}, {}, &wrong);
  if (run) CHECK(worst_of_tolerance(*run, reference, fp32, one) > 1);
}

namespace {

std::uint64_t state_of(const runtime::Trainer& trainer) {
  std::uint64_t hash = 0;
  for (const program::Region region : {program::Region::Weights, program::Region::MasterWeights,
                                       program::Region::Moment1, program::Region::Moment2}) {
    // With ZeRO a step begins with gathers of the weights that others own.
    if (region == program::Region::Weights && trainer.program().plan.zero_stage > 0) continue;
    const auto bytes = trainer.program().memory.regions[static_cast<std::size_t>(region)].bytes();
    hash = content_hash(std::span(trainer.arena().region(region), static_cast<std::size_t>(bytes)),
                        hash + 1);
  }
  return hash;
}

}  // namespace

TEST_CASE("every rank skips a step whose fp16 gradients overflow", "[parity]") {
  Fixture fixture;
  std::vector<DividedCase> cases = {{llama_style(), {.tp = 2, .pp = 2, .dp = 2}},
                                    {llama_style(), {.dp = 8}}};
  std::vector<DividedCase> smaller = divided_cases();
  for (const models::ModelSpec& model : {deepseek_style(), capacity_style()})
    smaller.push_back({model, {.dp = 2, .ep = 2}});
  for (DividedCase one : smaller) {  // on all ranks of the job
    one.parallel.dp *= fixture.world->size() / one.parallel.world_size();
    cases.push_back(one);
  }
  for (const DividedCase& one : cases) {
    INFO(describe(one));
    const Plan plan = plan_of(one);
    runtime::HostDevice device(*fixture.backend);
    runtime::Trainer trainer(program::lower(plan, runtime::stage_of(plan, fixture.world->rank())),
                             std::nullopt, *fixture.world, device, 7, nullptr);
    const runtime::StepBatch batch = parity_batch(plan, trainer.groups().coordinates());
    const std::uint64_t before = state_of(trainer);
    const runtime::StepOutcome overflown = trainer.train_step(
        batch, {.optimizer_step = 1, .learning_rate = 1e-2, .loss_scale = 0x1p40});
    CHECK_FALSE(std::isfinite(overflown.gradient_norm));
    CHECK(std::isfinite(overflown.loss));
    CHECK(state_of(trainer) == before);
    const runtime::StepOutcome fine = trainer.train_step(
        batch, {.optimizer_step = 1, .learning_rate = 1e-2, .loss_scale = 0x1p16});
    CHECK(std::isfinite(fine.gradient_norm));
    CHECK(fine.loss == overflown.loss);
    CHECK(state_of(trainer) != before);
  }
}

namespace {

/// Gradients of this rank's experts overflow in one step.
class OverflowingExperts final : public kernels::CpuBackend {
 public:
  OverflowingExperts() : CpuBackend(1, kernels::best_cpu_isa()) {}
  void run(const kernels::Operation& operation) override {
    CpuBackend::run(operation);
    const auto* experts = std::get_if<kernels::GroupedLinearWeightGrad>(&operation);
    if (overflows && experts != nullptr)
      experts->dweight[0] = std::numeric_limits<float>::infinity();
  }
  bool overflows = false;
};

/// Does a step leave this rank's state as it was when the experts of rank 5 alone overflow?
bool skips(Fixture& fixture, const Plan& plan, const Mutation& mutate = {}) {
  OverflowingExperts backend;
  runtime::HostDevice device(backend);
  program::Program program = program::lower(plan, runtime::stage_of(plan, fixture.world->rank()));
  if (mutate) mutate(program);
  runtime::Trainer trainer(std::move(program), std::nullopt, *fixture.world, device, 7, nullptr);
  const runtime::StepBatch batch = parity_batch(plan, trainer.groups().coordinates());
  const std::uint64_t before = state_of(trainer);
  backend.overflows = fixture.world->rank() == 5;
  trainer.train_step(batch, {.optimizer_step = 1, .learning_rate = 1e-2, .loss_scale = 0x1p16});
  return state_of(trainer) == before;
}

/// Seeded: a replica's ranks alone learn of its experts.
void norm_of_one_replica(program::Program& program) {
  for (program::Operation& operation : program.step_operations) {
    auto* flat = std::get_if<program::FlatCollectiveOp>(&operation.work);
    if (flat != nullptr && operation.name == "loss_and_norm.all_reduce")
      flat->collective.group = program::Group::TpPp;
  }
}

}  // namespace

TEST_CASE("every rank skips a step in which one rank's experts overflow", "[parity][experts]") {
  Fixture fixture;
  REQUIRE(fixture.world->size() == kMaxRanks);
  const std::vector<DividedCase> cases = {{mixtral_style(), {.dp = 8, .ep = 8}},
                                          {mixtral_style(), {.dp = 8, .ep = 4}, 1},
                                          {deepseek_style(), {.pp = 2, .dp = 4, .ep = 4}}};
  for (const DividedCase& one : cases) {
    INFO(describe(one));
    CHECK(skips(fixture, plan_of(one)));
  }
  int skipped = skips(fixture, plan_of(cases.front()), norm_of_one_replica) ? 1 : 0;
  const runtime::MutableBuffer count{&skipped, 1, DType::I32};
  fixture.world->all_reduce(count, count, runtime::ReduceOp::Sum).wait();
  CHECK(skipped < kMaxRanks);
}

}  // namespace meshplan::test::parity_precision
