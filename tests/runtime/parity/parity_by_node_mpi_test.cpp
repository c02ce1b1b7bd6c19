// Experts whose tokens travel once to each node: losses, gradients and norm of one rank, and bit
// for bit those of the flat exchange wherever no sum has another order.
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>

#include "lower/link.hpp"
#include "program/certificate/tolerance.hpp"
#include "program/checks/check.hpp"
#include "program/plan/plan_names.hpp"
#include "runtime/parity/parity_check.hpp"
#include "runtime/parity/parity_models.hpp"

namespace meshplan::test::parity_by_node {
namespace {

constexpr int kSteps = 2;

Plan base_plan(const models::ModelSpec& model) {
  Plan plan = parity_plan(model);
  plan.bucket_bytes = 16 << 10;
  return plan;
}

struct Layout {
  ParallelConfig parallel;
  int node_ranks = 2;
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kLayouts = {
      {{.dp = 4, .ep = 4}},
      {{.dp = 8, .ep = 4}},
      {{.dp = 8, .ep = 8}},
      {{.dp = 8, .ep = 8}, 4},
      {{.dp = 8, .ep = 4, .etp = 2}},
      {{.tp = 2, .dp = 2, .ep = 4, .sp = true}},
      {{.tp = 2, .dp = 4, .ep = 8, .sp = true}, 4},
      {{.tp = 4, .dp = 2, .ep = 4, .etp = 2, .sp = true}},
      {{.pp = 2, .dp = 4, .ep = 4}},
      {{.tp = 2, .pp = 2, .dp = 2, .ep = 4, .sp = true}},
      {{.cp = 2, .dp = 2, .ep = 4}},
      {{.cp = 2, .dp = 4, .ep = 8}, 4},
  };
  return kLayouts;
}

std::vector<Plan> plans_of(const models::ModelSpec& model) {
  std::vector<Plan> plans;
  for (const Layout& layout : layouts()) {
    const auto count = static_cast<int>(plans.size());
    Plan plan = base_plan(model);
    plan.parallel = layout.parallel;
    plan.expert_node_ranks = layout.node_ranks;
    plan.recompute.kind = static_cast<RecomputeKind>(count % 3);
    if (plan.parallel.pp > 1)
      plan.schedule = count % 2 == 0 ? ScheduleKind::ZbH1 : ScheduleKind::OverlappedOneFOneB;
    if (plan.parallel.pp == 1) plan.zero_stage = count % 4;
    if (plan.zero_stage == 1) plan.schedule = ScheduleKind::OverlappedOneFOneB;
    REQUIRE(program::check(plan).empty());
    plans.push_back(plan);
  }
  return plans;
}

std::string describe(const Plan& plan) {
  return fmt::format("{}: {} {} nodes of {} recompute {} zero {}", plan.model.name,
                     to_string(plan.parallel), name_of(plan.schedule), plan.expert_node_ranks,
                     static_cast<int>(plan.recompute.kind), plan.zero_stage);
}

/// The rows of an expert come in another order, by place in the node before node, and so the
/// gradients of its weights are summed in another.
bool is_of_experts(const std::string& parameter) {
  return parameter.find("experts") != std::string::npos &&
         parameter.find("shared") == std::string::npos;
}

void check_same_as_flat(ParityJob& job, Plan plan) {
  INFO(describe(plan));
  REQUIRE(program::check(plan).empty());
  const auto by_node = job.run(plan);
  plan.expert_node_ranks = 0;
  const auto flat = job.run(plan);
  if (!by_node) return;
  CHECK(by_node->losses.front() == flat->losses.front());
  CHECK(by_node->expert_loads.front() == flat->expert_loads.front());
  int of_experts = 0;
  for (const auto& [name, gradient] : flat->gradients) {
    INFO(name);
    of_experts += is_of_experts(name) ? 1 : 0;
    if (!is_of_experts(name)) CHECK(by_node->gradients.at(name) == gradient);
  }
  CHECK(of_experts > 0);
  const GradientError error = compare_gradients(*by_node, *flat);
  CHECK(error.relative <= 1e-5);
}

// ---------------------------------------------------------------- seeded bugs

template <class Change>
void for_each_named(program::Program& program, std::string_view name, const Change& change) {
  int found = 0;
  for (program::Block& block : program.blocks)
    for (auto* operations : {&block.forward, &block.backward})
      for (program::Operation& operation : *operations)
        if (operation.name == name) {
          change(operation);
          ++found;
        }
  REQUIRE(found > 0);
  program::link(program);
}

/// Nodes with half of their experts: choices of the others are nobody's.
void take_nodes_for_smaller(program::Program& program) {
  for_each_named(program, "dispatch.node_routing", [](program::Operation& operation) {
    std::get<program::ComputeOp>(operation.work).attributes.num_experts /= 2;
  });
}

void lose_gradients_of_probabilities(program::Program& program) {
  for_each_named(program, "dispatch.node_routing.input_grad", [](program::Operation& operation) {
    std::get<program::ComputeOp>(operation.work).attributes.num_experts /= 2;
  });
}

/// A row of each node is added to the token that its number names.
void sum_rows_of_other_tokens(program::Program& program) {
  program::ValueId choice_of_row = 0;
  for_each_named(program, "dispatch.node_plan",
                 [&](program::Operation& operation) { choice_of_row = operation.outputs[1]; });
  for_each_named(program, "combine",
                 [&](program::Operation& operation) { operation.inputs[1] = choice_of_row; });
}

/// A rank weighs what it forwards like what it sent itself.
void weigh_with_own_probabilities(program::Program& program) {
  program::ValueId sent = 0;
  for_each_named(program, "dispatch.node_routing",
                 [&](program::Operation& operation) { sent = operation.outputs[0]; });
  for_each_named(program, "combine.in_node",
                 [&](program::Operation& operation) { operation.inputs[1] = sent; });
}

}  // namespace

TEST_CASE("plans that dispatch by node give the gradients and losses of one rank",
          "[parity][experts][by_node]") {
  ParityJob job{.steps = kSteps};
  for (const models::ModelSpec& model : {mixtral_style(), shared_experts_style(), deepseek_style(),
                                         gpt_oss_style(), balanced_style(), capacity_style()})
    check_plans(job, "by_node", model.name + " by node", base_plan(model), plans_of(model),
                describe);
}

TEST_CASE("a dispatch by node changes no bit where all experts of a token are one node's",
          "[parity][experts][by_node]") {
  ParityJob job{.steps = 1};
  models::ModelSpec single = mixtral_style();
  single.moe->top_k = 1;
  models::ModelSpec grouped = mixtral_style();
  grouped.moe->router.num_groups = 2;  // each of them a node's
  grouped.moe->router.top_groups = 1;
  for (const models::ModelSpec& model : {single, grouped})
    for (const DType precision : {DType::F32, DType::BF16})
      for (const Layout& layout : {Layout{{.dp = 4, .ep = 4}, 2}, Layout{{.dp = 8, .ep = 8}, 4},
                                   Layout{{.tp = 2, .dp = 2, .ep = 4, .sp = true}, 2}}) {
        Plan plan = base_plan(model);
        plan.workload.precision = precision;
        plan.parallel = layout.parallel;
        plan.expert_node_ranks = layout.node_ranks;
        check_same_as_flat(job, plan);
      }
}

TEST_CASE("tokens in FP8 give the gradients of one rank, to the format's precision",
          "[parity][experts][by_node][float8_dispatch]") {
  ParityJob job{.steps = kSteps};
  for (models::ModelSpec model : {mixtral_style(), deepseek_style()}) {
    model.moe->top_k = model.moe->num_experts;  // rounding must not change who is chosen
    model.moe->router.num_groups = model.moe->router.top_groups = 1;
    Plan plan = base_plan(model);
    plan.workload.precision = DType::BF16;
    const RunResult reference = job.run_alone(plan);
    plan.expert_dispatch_fp8 = true;
    for (const Layout& layout :
         {Layout{{.dp = 2, .ep = 2}, 0}, Layout{{.dp = 4, .ep = 4}, 2},
          Layout{{.dp = 8, .ep = 8}, 4}, Layout{{.tp = 2, .dp = 2, .ep = 4, .sp = true}, 2},
          Layout{{.pp = 2, .dp = 4, .ep = 2, .etp = 2}, 0}}) {
      plan.parallel = layout.parallel;
      plan.expert_node_ranks = layout.node_ranks;
      plan.recompute.kind = static_cast<RecomputeKind>(layout.parallel.ep % 3);
      INFO(describe(plan));
      REQUIRE(program::check(plan).empty());
      const auto run = job.run(plan);
      Plan plain = plan;
      plain.expert_dispatch_fp8 = false;
      const auto in_bf16 = job.run(plain);
      if (!run) continue;
      const double tolerance = program::half_tolerance(plan);
      const GradientError error = compare_gradients(*run, reference, 1e-2);
      INFO("worst gradient " << error.worst << " by " << error.relative << " of " << tolerance);
      CHECK(error.relative <= tolerance);
      CHECK(error.small_absolute <= tolerance * 1e-2);
      CHECK(run->losses.front() == Approx(reference.losses.front()).epsilon(0x1p-6));
      // It rounds more than bf16 does: tokens did travel in FP8.
      CHECK(error.relative > 2 * compare_gradients(*in_bf16, reference, 1e-2).relative);
    }
  }
}

TEST_CASE("tokens in FP8 are the same by node and to every rank",
          "[parity][experts][by_node][float8_dispatch]") {
  ParityJob job{.steps = 1};
  models::ModelSpec single = mixtral_style();
  single.moe->top_k = 1;
  Plan plan = base_plan(single);
  plan.workload.precision = DType::BF16;
  plan.parallel = {.dp = 8, .ep = 8};
  plan.expert_node_ranks = 4;
  plan.expert_dispatch_fp8 = true;
  check_same_as_flat(job, plan);
}

TEST_CASE("each seeded bug in a dispatch by node breaks parity", "[parity][experts][by_node]") {
  ParityJob job{.steps = kSteps};
  Plan plan = base_plan(mixtral_style());
  const RunResult reference = job.run_alone(plan);
  plan.parallel = {.dp = 4, .ep = 4};
  plan.expert_node_ranks = 2;
  const auto right = job.run(plan);
  if (right) CHECK(agrees(*right, reference));
  using Bug = void (*)(program::Program&);
  for (const Bug bug : {take_nodes_for_smaller, lose_gradients_of_probabilities,
                        sum_rows_of_other_tokens, weigh_with_own_probabilities}) {
    const auto wrong = job.run(plan, bug);
    if (wrong) CHECK_FALSE(agrees(*wrong, reference));
  }
}

}  // namespace meshplan::test::parity_by_node
