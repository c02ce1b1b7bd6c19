// Mixtures of experts: any plan gives the losses, gradients and gradient norm of one rank.
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include "lower/link.hpp"
#include "runtime/parity/parity_check.hpp"
#include "runtime/parity/parity_models.hpp"

namespace meshplan::test::parity_experts {
namespace {

constexpr int kSteps = 2;

Plan base_plan(const models::ModelSpec& model) {
  Plan plan = parity_plan(model);
  plan.bucket_bytes = 16 << 10;
  return plan;
}

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

std::vector<Plan> plans_of(const models::ModelSpec& model) {
  std::vector<Plan> plans;
  for (const ParallelConfig& parallel : expert_plans()) {
    const auto count = static_cast<int>(plans.size());
    Plan plan = base_plan(model);
    plan.parallel = parallel;
    plan.recompute.kind = static_cast<RecomputeKind>(count % 3);
    constexpr ScheduleKind kSchedules[] = {ScheduleKind::GPipe, ScheduleKind::OneFOneB,
                                           ScheduleKind::ZbH1};
    if (parallel.pp > 1) plan.schedule = kSchedules[count % 3];
    if (parallel.pp > 1) plan.recompute.kind = static_cast<RecomputeKind>(count / 2 % 3);
    // What no gradient moves is whole on every rank, however the rest is sharded.
    if (parallel.dp > 1 && parallel.pp == 1 && model.moe->router.correction_bias)
      plan.zero_stage = count % 2;
    // Biases that all etp ranks hold are owned in parts like any other parameter.
    if (parallel.dp > 1 && parallel.pp == 1 && model.moe->expert_bias) plan.zero_stage = count % 4;
    plans.push_back(plan);
  }
  return plans;
}

void check_parity(const models::ModelSpec& model) {
  ParityJob fixture{.steps = kSteps};
  check_plans(fixture, "experts", model.name, base_plan(model), plans_of(model),
              [](const Plan& plan) {
                return fmt::format("{}: {} schedule {} recompute {} zero {}", plan.model.name,
                                   to_string(plan.parallel), static_cast<int>(plan.schedule),
                                   static_cast<int>(plan.recompute.kind), plan.zero_stage);
              });
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
    if (work != nullptr && work->kind == program::ComputeKind::RegroupRows &&
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

void erase_operations(program::Program& program, std::string_view name) {
  std::erase_if(program.instances, [&](const program::OperationInstance& instance) {
    return program::operation_of(program, instance).name == name;
  });
  program::link(program);
}

void drop_router_gradient(program::Program& program) {
  erase_operations(program, "router.weight_grad");
}

void do_not_sum_load(program::Program& program) {
  erase_operations(program, "expert_load.all_reduce");
}

/// Rows come back to where others belong.
void return_rows_to_wrong_slots(program::Program& program) {
  for_each_operation(program, [](program::Operation& operation) {
    auto* work = std::get_if<program::ComputeOp>(&operation.work);
    if (work != nullptr && operation.name == "combine.regroup") work->reverse = !work->reverse;
  });
}

/// The bias that is for the choice alone becomes part of the logits, and so of the weights.
void weigh_with_correction_bias(program::Program& program) {
  for_each_operation(program, [](program::Operation& operation) {
    auto* work = std::get_if<program::ComputeOp>(&operation.work);
    if (work == nullptr || operation.name != "router") return;
    work->attributes.router.correction_bias = false;
    work->attributes.router.bias = true;
  });
}

/// Each etp rank adds the bias to its part of the sum.
void add_bias_on_every_etp_rank(program::Program& program) {
  for_each_operation(program, [](program::Operation& operation) {
    auto* work = std::get_if<program::ComputeOp>(&operation.work);
    if (work != nullptr && operation.name == "expert_down") work->split = models::Split::Column;
  });
}

void count_every_copy_of_a_bias(program::Program& program) {
  for_each_operation(program, [](program::Operation& operation) {
    if (auto* step = std::get_if<program::StepOp>(&operation.work); step != nullptr && step->expert)
      step->tp_copies = 1;
  });
}

void drop_sinks_gradient(program::Program& program) {
  erase_operations(program, "attention.weight_grad");
}

struct SeededBug {
  std::string name;
  models::ModelSpec model;
  ParallelConfig parallel;
  Mutation mutate;
};

std::vector<SeededBug> seeded_bugs() {
  const models::ModelSpec mixtral = mixtral_style();
  const ParallelConfig two{.dp = 2, .ep = 2};
  const ParallelConfig four{.dp = 4, .ep = 2};
  return {
      {"expert gradients over dp", mixtral, four, reduce_experts_over_dp},
      {"expert gradients not reduced", mixtral, four, do_not_reduce_experts},
      {"rows and choices swapped", mixtral, two, swap_rows_and_choices},
      {"rows off by one element", mixtral, two, exchange_rows_one_element_short},
      {"gradients regrouped the wrong way", mixtral, two, send_gradients_the_forward_way},
      {"norm counts every replica", mixtral, four, count_every_replica_of_experts},
      {"router gradient dropped", mixtral, two, drop_router_gradient},
      {"rows returned to wrong slots", mixtral, two, return_rows_to_wrong_slots},
      {"load of one rank alone", deepseek_style(), two, do_not_sum_load},
      {"correction bias in the weights", deepseek_style(), two, weigh_with_correction_bias},
      {"bias added by every etp rank",
       gpt_oss_style(),
       {.dp = 2, .etp = 2},
       add_bias_on_every_etp_rank},
      {"norm counts every copy of a bias",
       gpt_oss_style(),
       {.dp = 2, .etp = 2},
       count_every_copy_of_a_bias},
      {"sinks' gradient dropped", gpt_oss_style(), two, drop_sinks_gradient},
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

TEST_CASE("every plan of a DeepSeek-style model gives the gradients and losses of one rank",
          "[parity][experts][latent]") {
  check_parity(deepseek_style());
}

TEST_CASE("every plan of a gpt-oss-style model gives the gradients and losses of one rank",
          "[parity][experts][sinks]") {
  check_parity(gpt_oss_style());
}

TEST_CASE("every plan with router losses gives the gradients and losses of one rank",
          "[parity][experts][losses]") {
  check_parity(balanced_style());
}

TEST_CASE("every plan drops the same tokens beyond an expert's capacity as one rank",
          "[parity][experts][capacity]") {
  check_parity(capacity_style());
  ParityJob fixture{.steps = kSteps};
  models::ModelSpec dropless = capacity_style();
  dropless.moe->capacity_factor = 0;
  const RunResult all = fixture.run_alone(base_plan(dropless));
  const RunResult dropped = fixture.run_alone(base_plan(capacity_style()));
  CHECK(all.losses.front() != dropped.losses.front());
}

TEST_CASE("in bf16 the experts' plans give the gradients of one rank, to the format's precision",
          "[parity][experts][bf16]") {
  // 22 roundings in a layer, as parity_mpi_test counts them; routing must agree exactly first, so
  // plans do not change what the router reads.
  ParityJob fixture{.steps = kSteps};
  for (const models::ModelSpec& model : {mixtral_style(), deepseek_style(), gpt_oss_style()}) {
    Plan plan = base_plan(model);
    plan.workload.precision = DType::BF16;
    const RunResult reference = fixture.run_alone(plan);
    const double tolerance = std::sqrt(2.0 * 22 * model.num_layers) * 0.4 / 256;
    for (const ParallelConfig& parallel :
         {ParallelConfig{.dp = 4}, ParallelConfig{.dp = 2, .ep = 2},
          ParallelConfig{.dp = 8, .ep = 4}, ParallelConfig{.pp = 2, .dp = 2, .ep = 2}}) {
      plan.parallel = parallel;
      const auto run = fixture.run(plan);
      if (!run) continue;
      INFO(model.name << ": " << to_string(parallel));
      CHECK(run->expert_loads.front() == reference.expert_loads.front());
      const GradientError error = compare_gradients(*run, reference, 1e-2);
      INFO("worst gradient " << error.worst);
      CHECK(error.relative <= tolerance);
      CHECK(error.small_absolute <= tolerance * 1e-2);
      CHECK(run->losses.front() == Approx(reference.losses.front()).epsilon(1.0 / 256));
    }
  }
}

TEST_CASE("each seeded bug in expert parallelism breaks parity", "[parity][experts]") {
  ParityJob fixture{.steps = kSteps};
  std::map<std::string, RunResult> references;
  for (const SeededBug& bug : seeded_bugs()) {
    Plan plan = base_plan(bug.model);
    const auto [entry, fresh] = references.try_emplace(bug.model.name);
    if (fresh) entry->second = fixture.run_alone(plan);
    const RunResult& reference = entry->second;
    plan.parallel = bug.parallel;
    const auto wrong = fixture.run(plan, bug.mutate);
    INFO(bug.name);
    if (wrong) CHECK_FALSE(agrees(*wrong, reference));
  }
}

}  // namespace meshplan::test::parity_experts
