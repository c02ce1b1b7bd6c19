// Mixtures of experts: any plan gives the losses, gradients and gradient norm of one rank.
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <iostream>

#include "kernels/cpu_backend.hpp"
#include "mpi_test_session.hpp"
#include "runtime/mpi_communicator.hpp"
#include "runtime/parity_support.hpp"

namespace meshplan::test {
namespace {

using program::ParallelConfig;
using program::Plan;
using program::RecomputeKind;
using program::ScheduleKind;

constexpr int kSteps = 2;

/// Every layer routes each token to 2 of 8 experts, softmax weights that sum to 1.
models::ModelSpec mixtral_style() {
  models::ModelSpec model = llama_style();
  model.name = "mixtral-style";
  model.num_layers = 2;
  model.ffn_size = 0;
  model.moe = models::MoeSpec{.num_experts = 8, .top_k = 2, .expert_ffn_size = 32};
  return model;
}

/// The first layer is dense; shared experts beside 3 of 8 routed ones, sigmoid scores, scaled.
models::ModelSpec shared_experts_style() {
  models::ModelSpec model = mixtral_style();
  model.name = "shared-experts-style";
  model.ffn_size = 96;
  model.moe->top_k = 3;
  model.moe->shared_expert_ffn_size = 32;
  model.moe->dense_layers = {0};
  model.moe->router.score = models::RouterScore::Sigmoid;
  model.moe->router.scaling_factor = 2.5;
  return model;
}

Plan base_plan(const models::ModelSpec& model) {
  Plan plan;
  plan.model = model;
  plan.workload.seq_len = 16;
  plan.workload.global_batch_size = 8;
  plan.workload.optimizer.learning_rate = 1e-3;
  plan.bucket_bytes = 16 << 10;
  plan.expert_imbalance = 8;  // an untrained router may send any rank everything
  return plan;
}

struct Fixture {
  std::unique_ptr<runtime::Communicator> world = runtime::make_mpi_world(mpi_session(), {});
  std::unique_ptr<kernels::Backend> backend = kernels::make_cpu_backend(1);

  /// Runs on the first ranks of the job; the others get nothing.
  std::optional<RunResult> run(const Plan& plan, const Mutation& mutate = {}) {
    std::vector<int> ranks(static_cast<std::size_t>(plan.parallel.world_size()));
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
    const auto group = world->create_group(ranks, "plan");
    if (group == nullptr) return std::nullopt;
    return run_plan(plan, kSteps, *group, *backend, mutate);
  }

  RunResult run_alone(const Plan& plan) {
    const int self = world->rank();
    const auto group = world->create_group(std::span(&self, 1), "alone");
    return run_plan(plan, kSteps, *group, *backend);
  }
};

const std::vector<ParallelConfig>& expert_plans() {
  static const std::vector<ParallelConfig> kPlans = {
      {.dp = 2},
      {.dp = 2, .ep = 2},
      {.dp = 4, .ep = 2},
      {.dp = 4, .ep = 4},
      {.dp = 8, .ep = 4},
      {.dp = 8, .ep = 8},
      {.dp = 2, .etp = 2},
      {.dp = 4, .ep = 2, .etp = 2},
      {.dp = 8, .ep = 2, .etp = 2},
      {.tp = 2, .sp = true},
      {.tp = 2, .ep = 2, .sp = true},
      {.tp = 2, .etp = 2, .sp = true},
      {.tp = 2, .dp = 2, .ep = 2, .sp = true},
      {.tp = 2, .dp = 2, .ep = 4, .sp = true},
      {.tp = 2, .dp = 2, .ep = 2, .etp = 2, .sp = true},
      {.tp = 4, .dp = 2, .ep = 4, .etp = 2, .sp = true},
      {.pp = 2, .dp = 2, .ep = 2},
      {.pp = 2, .dp = 4, .ep = 2, .etp = 2},
      {.tp = 2, .pp = 2, .ep = 2, .sp = true},
      {.tp = 2, .pp = 2, .dp = 2, .ep = 4, .sp = true},
  };
  return kPlans;
}

/// Relative errors of the norms and losses of all steps.
double scalar_error(const RunResult& run, const RunResult& reference) {
  double worst = 0;
  for (std::size_t step = 0; step < kSteps; ++step) {
    worst = std::max(worst, std::abs(run.losses[step] / reference.losses[step] - 1));
    worst =
        std::max(worst, std::abs(run.gradient_norms[step] / reference.gradient_norms[step] - 1));
  }
  return worst;
}

bool agrees(const RunResult& run, const RunResult& reference) {
  const GradientError error = compare_gradients(run, reference);
  return error.relative <= 1e-5 && error.small_absolute <= 1e-11 &&
         scalar_error(run, reference) <= 1e-5;
}

void check_parity(const models::ModelSpec& model) {
  Fixture fixture;
  const RunResult reference = fixture.run_alone(base_plan(model));
  REQUIRE(reference.losses.back() < reference.losses.front());
  double worst = 0;
  int count = 0;
  for (const ParallelConfig& parallel : expert_plans()) {
    Plan plan = base_plan(model);
    plan.parallel = parallel;
    plan.recompute.kind = static_cast<RecomputeKind>(count % 3);
    constexpr ScheduleKind kSchedules[] = {ScheduleKind::GPipe, ScheduleKind::OneFOneB,
                                           ScheduleKind::ZbH1};
    if (parallel.pp > 1) plan.schedule = kSchedules[count % 3];
    if (parallel.pp > 1) plan.recompute.kind = static_cast<RecomputeKind>(count / 2 % 3);
    ++count;
    const auto run = fixture.run(plan);
    if (!run) continue;
    const GradientError error = compare_gradients(*run, reference);
    worst = std::max(worst, error.relative);
    INFO(model.name << ": " << to_string(parallel) << " schedule "
                    << static_cast<int>(plan.schedule) << " recompute "
                    << static_cast<int>(plan.recompute.kind) << ", worst gradient " << error.worst);
    CHECK(error.relative <= 1e-5);
    CHECK(error.small_absolute <= 1e-11);
    CHECK(scalar_error(*run, reference) <= 1e-5);
  }
  if (fixture.world->rank() == 0)
    std::cout << fmt::format("{}: {} plans, worst relative gradient error {:.2e}\n", model.name,
                             count, worst);
}

// ---------------------------------------------------------------- seeded bugs

template <class Change>
void for_each_operation(program::Program& program, const Change& change) {
  for (program::Block& block : program.blocks)
    for (auto* operations : {&block.forward, &block.backward})
      for (program::Operation& operation : *operations) change(operation);
  for (program::Operation& operation : program.step_operations) change(operation);
  program::link(program);
}

void reduce_experts_over_dp(program::Program& program) {
  for_each_operation(program, [](program::Operation& operation) {
    auto* flat = std::get_if<program::FlatCollectiveOp>(&operation.work);
    if (flat != nullptr && flat->collective.group == program::Group::ExpertDp)
      flat->collective.group = program::Group::DpCp;
  });
}

void do_not_reduce_experts(program::Program& program) {
  std::erase_if(program.instances, [&](const program::OperationInstance& instance) {
    const auto* flat =
        std::get_if<program::FlatCollectiveOp>(&program::operation_of(program, instance).work);
    return flat != nullptr && flat->collective.group == program::Group::ExpertDp;
  });
  program::link(program);
}

/// Rows go where their inverse says, so that weights meet the rows of other choices.
void swap_rows_and_choices(program::Program& program) {
  for_each_operation(program, [](program::Operation& operation) {
    if (operation.name == "dispatch.plan") std::swap(operation.outputs[0], operation.outputs[1]);
  });
}

void exchange_rows_one_element_short(program::Program& program) {
  for_each_operation(program, [](program::Operation& operation) {
    if (auto* work = std::get_if<program::CollectiveOp>(&operation.work)) --work->row_elements;
  });
}

void send_gradients_the_forward_way(program::Program& program) {
  for_each_operation(program, [](program::Operation& operation) {
    auto* work = std::get_if<program::ComputeOp>(&operation.work);
    if (work != nullptr && work->kind == models::OpKind::RegroupRows &&
        operation.phase == program::Phase::InputGrad)
      work->reverse = !work->reverse;
  });
}

void count_every_replica_of_experts(program::Program& program) {
  for_each_operation(program, [](program::Operation& operation) {
    if (auto* step = std::get_if<program::StepOp>(&operation.work); step != nullptr && step->expert)
      step->first_replica_only = false;
  });
}

struct SeededBug {
  std::string name;
  ParallelConfig parallel;
  Mutation mutate;
};

std::vector<SeededBug> seeded_bugs() {
  return {
      {"expert gradients over dp", {.dp = 4, .ep = 2}, reduce_experts_over_dp},
      {"expert gradients not reduced", {.dp = 4, .ep = 2}, do_not_reduce_experts},
      {"rows and choices swapped", {.dp = 2, .ep = 2}, swap_rows_and_choices},
      {"rows off by one element", {.dp = 2, .ep = 2}, exchange_rows_one_element_short},
      {"gradients regrouped the wrong way", {.dp = 2, .ep = 2}, send_gradients_the_forward_way},
      {"norm counts every replica", {.dp = 4, .ep = 2}, count_every_replica_of_experts},
  };
}

}  // namespace

TEST_CASE("every plan of a Mixtral-style model gives the gradients and losses of one rank",
          "[parity][experts]") {
  check_parity(mixtral_style());
}

TEST_CASE("every plan with shared experts gives the gradients and losses of one rank",
          "[parity][experts]") {
  check_parity(shared_experts_style());
}

TEST_CASE("each seeded bug in expert parallelism breaks parity", "[parity][experts]") {
  Fixture fixture;
  const RunResult reference = fixture.run_alone(base_plan(mixtral_style()));
  for (const SeededBug& bug : seeded_bugs()) {
    Plan plan = base_plan(mixtral_style());
    plan.parallel = bug.parallel;
    const auto wrong = fixture.run(plan, bug.mutate);
    INFO(bug.name);
    if (wrong) CHECK_FALSE(agrees(*wrong, reference));
  }
}

}  // namespace meshplan::test
