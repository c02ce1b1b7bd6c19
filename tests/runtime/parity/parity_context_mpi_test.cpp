// Context parallelism: any plan gives the losses, gradients and gradient norm of one rank.
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>

#include "lower/link.hpp"
#include "program/checks/check.hpp"
#include "runtime/parity/parity_check.hpp"
#include "runtime/parity/parity_models.hpp"

namespace meshplan::test::parity_context {
namespace {

constexpr int kSteps = 2;

constexpr ContextMethod kMethods[] = {ContextMethod::AllGather, ContextMethod::Ring,
                                      ContextMethod::Ulysses};

std::string_view name_of(ContextMethod method) {
  switch (method) {
    case ContextMethod::AllGather:
      return "all_gather";
    case ContextMethod::Ring:
      return "ring";
    case ContextMethod::Ulysses:
      return "ulysses";
  }
  return "";
}

/// Two layers are enough: no rank sees cp in more than one.
Plan base_plan(const models::ModelSpec& model) {
  Plan plan = parity_plan(model);
  plan.model.num_layers = 2;
  plan.workload.seq_len = 32;
  plan.workload.global_batch_size = 4;
  plan.bucket_bytes = 16 << 10;
  return plan;
}

std::string describe(const Plan& plan) {
  return fmt::format("{} {} {} mbs{} schedule {} recompute {}", plan.model.name,
                     to_string(plan.parallel), name_of(plan.context_parallel),
                     plan.micro_batch_size, static_cast<int>(plan.schedule),
                     static_cast<int>(plan.recompute.kind));
}

const std::vector<ParallelConfig>& context_meshes() {
  static const std::vector<ParallelConfig> kMeshes = {
      {.cp = 2},
      {.cp = 4},
      {.cp = 2, .dp = 2},
      {.cp = 4, .dp = 2},
      {.tp = 2, .cp = 2},
      {.tp = 2, .cp = 2, .sp = true},
      {.tp = 2, .cp = 4, .sp = true},
      {.tp = 4, .cp = 2, .sp = true},
      {.cp = 2, .pp = 2},
      {.cp = 2, .pp = 2, .dp = 2},
      {.cp = 2, .pp = 2, .vpp = 2, .dp = 2},
      {.tp = 2, .cp = 2, .pp = 2, .sp = true},
      {.tp = 2, .cp = 2, .dp = 2, .sp = true},
  };
  return kMeshes;
}

/// Rings on every mesh that can have one, the other methods on every one of a short list and in
/// turns on those of a long one; recompute, micro-batch size and schedule take turns.
std::vector<Plan> plans_of(const models::ModelSpec& model,
                           const std::vector<ParallelConfig>& meshes) {
  std::vector<Plan> plans;
  for (const ContextMethod method : kMethods)
    for (std::size_t i = 0; i < meshes.size(); ++i) {
      const bool turns = meshes.size() > 5 && method != ContextMethod::Ring;
      if (turns && (i % 2 == 0) != (method == ContextMethod::AllGather)) continue;
      const ParallelConfig& parallel = meshes[i];
      Plan plan = base_plan(model);
      const auto turn = plans.size();
      plan.parallel = parallel;
      plan.context_parallel = method;
      plan.micro_batch_size = turn % 2 == 0 ? 1 : 2;
      plan.recompute.kind = static_cast<RecomputeKind>(turn % 3);
      if (parallel.vpp > 1) plan.layers_per_stage = {0, 1, 1, 0};
      if (parallel.vpp > 1)
        plan.schedule = turn % 2 == 0 ? ScheduleKind::ZbV : ScheduleKind::Interleaved;
      else if (parallel.pp > 1)
        plan.schedule = turn % 2 == 0 ? ScheduleKind::ZbH1 : ScheduleKind::OneFOneB;
      if (check(plan).empty()) plans.push_back(plan);
    }
  return plans;
}

void check_parity(const std::vector<Plan>& plans) {
  ParityJob fixture{.steps = kSteps};
  const models::ModelSpec& model = plans.front().model;
  check_plans(fixture, "context", model.name, base_plan(model), plans, describe);
}

}  // namespace

TEST_CASE("every plan with cp gives a Llama-style model the gradients of one rank",
          "[parity][context]") {
  const std::vector<Plan> plans = plans_of(llama_style(), context_meshes());
  CHECK(plans.size() >= 20);
  check_parity(plans);
}

TEST_CASE("every plan with cp gives a GPT-2-style model the gradients of one rank",
          "[parity][context]") {
  check_parity(plans_of(gpt2_style(), {{.cp = 2},
                                       {.cp = 8},
                                       {.tp = 2, .cp = 4},
                                       {.cp = 2, .pp = 2, .dp = 2},
                                       {.tp = 2, .cp = 2, .pp = 2, .sp = true}}));
}

TEST_CASE("sliding windows and experts go with cp", "[parity][context]") {
  check_parity(plans_of(sliding_style(), {{.cp = 2}, {.cp = 4}, {.tp = 2, .cp = 4, .sp = true}}));
  check_parity(plans_of(mixtral_style(), {{.cp = 2, .ep = 2},
                                          {.cp = 4, .ep = 2},
                                          {.cp = 2, .dp = 2, .ep = 4},
                                          {.tp = 2, .cp = 2, .ep = 2, .etp = 2, .sp = true}}));
}

TEST_CASE("a sink joins each softmax once, whatever ranks hold its keys",
          "[parity][context][sinks]") {
  check_parity(plans_of(sinks_style(), {{.cp = 2},
                                        {.cp = 4},
                                        {.tp = 2, .cp = 2, .sp = true},
                                        {.cp = 2, .pp = 2},
                                        {.tp = 2, .cp = 2, .pp = 2, .sp = true}}));
  check_parity(
      plans_of(gpt_oss_style(),
               {{.cp = 2, .ep = 2}, {.cp = 4}, {.tp = 2, .cp = 2, .ep = 2, .etp = 2, .sp = true}}));
}

TEST_CASE("router losses and capacity are those of whole sequences over cp", "[parity][context]") {
  for (const models::ModelSpec& model : {balanced_style(), capacity_style()})
    check_parity(plans_of(model, {{.cp = 4},
                                  {.cp = 2, .ep = 2},
                                  {.cp = 2, .dp = 2, .ep = 4},
                                  {.tp = 2, .cp = 2, .sp = true},
                                  {.tp = 2, .cp = 2, .dp = 2, .ep = 4, .etp = 2, .sp = true}}));
}

TEST_CASE("latent attention goes with cp", "[parity][context]") {
  const std::vector<Plan> plans = plans_of(
      latent_style(), {{.cp = 2}, {.cp = 4}, {.tp = 2, .cp = 2, .sp = true}, {.cp = 2, .pp = 2}});
  CHECK(plans.size() == 12);
  check_parity(plans);
}

TEST_CASE("with fewer key heads than tp ranks, cp gives the gradients of one rank",
          "[parity][context]") {
  models::ModelSpec model = llama_style();
  model.num_kv_heads = 2;
  check_parity(plans_of(model, {{.cp = 2}, {.tp = 4, .cp = 2}, {.tp = 4, .cp = 2, .sp = true}}));
}

TEST_CASE("with cp, recomputation changes no bit, and two runs are bit-identical",
          "[parity][context]") {
  ParityJob fixture{.steps = kSteps};
  for (const ContextMethod method : kMethods) {
    Plan plan = base_plan(llama_style());
    plan.parallel = {.tp = 2, .cp = 2, .pp = 2, .sp = true};
    plan.context_parallel = method;
    const auto kept = fixture.run(plan);
    for (const RecomputeKind kind :
         {RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Full}) {
      plan.recompute.kind = kind;
      const auto again = fixture.run(plan);
      if (!kept) continue;
      INFO(describe(plan));
      CHECK(kept->losses == again->losses);
      CHECK(kept->gradients == again->gradients);
      CHECK(kept->weights_hash == again->weights_hash);
    }
  }
}

/// Relative L2 error of a bf16 gradient against one rank's: bf16 keeps 8 bits, so a rounding moves
/// a number by 0.4 / 256 of itself in the mean, independently; a layer rounds some 22 values on the
/// way of a gradient, cp rounds a few more in every step of a ring.
TEST_CASE("in bf16, cp gives the gradients of one rank to the format's precision",
          "[parity][context]") {
  ParityJob fixture{.steps = kSteps};
  Plan plan = base_plan(llama_style());
  plan.workload.precision = DType::BF16;
  const RunResult reference = fixture.run_alone(plan);
  for (const ContextMethod method : kMethods) {
    plan.parallel = {.cp = 4};
    plan.context_parallel = method;
    const auto run = fixture.run(plan);
    if (!run) continue;
    const double tolerance = std::sqrt(2.0 * plan.model.num_layers * (22 + 2 * 4)) * 0.4 / 256;
    const GradientError error = compare_gradients(*run, reference, 1e-2);
    INFO(name_of(method) << ", worst gradient " << error.worst);
    CHECK(error.relative <= tolerance);
    CHECK(error.small_absolute <= tolerance * 1e-2);
    CHECK(run->losses.front() == Approx(reference.losses.front()).epsilon(1.0 / 256));
  }
}

// ---------------------------------------------------------------- seeded bugs

namespace {

template <class Change>
void for_each_operation(program::Program& program, const Change& change) {
  for (program::Block& block : program.blocks)
    for (auto* operations : {&block.forward, &block.backward})
      for (program::Operation& operation : *operations) change(operation);
  for (program::Operation& operation : program.step_operations) change(operation);
  program::link(program);
}

template <class Predicate>
void erase_instances(program::Program& program, const Predicate& predicate) {
  std::erase_if(program.instances, [&](const program::OperationInstance& instance) {
    return predicate(program::operation_of(program, instance));
  });
  program::link(program);
}

void scale_query_gradients(program::Program& program) {
  for_each_operation(program, [](program::Operation& operation) {
    auto* work = std::get_if<program::ComputeOp>(&operation.work);
    if (work != nullptr && work->kind == program::ComputeKind::Attention &&
        operation.phase == program::Phase::InputGrad)
      work->attributes.scale *= 1.01;
  });
}

/// Chunks go where their inverse says: the halves of the ranks change places.
void swap_chunks(program::Program& program) {
  for_each_operation(program, [](program::Operation& operation) {
    auto* work = std::get_if<program::ComputeOp>(&operation.work);
    if (work != nullptr && work->kind == program::ComputeKind::OrderChunks)
      work->reverse = !work->reverse;
  });
}

void keep_own_keys_gradients(program::Program& program) {
  for_each_operation(program, [](program::Operation& operation) {
    auto* work = std::get_if<program::CollectiveOp>(&operation.work);
    if (work != nullptr && work->group == program::Group::Cp) work->reduce = program::ReduceOp::Max;
  });
}

void skip_keys_gradients(program::Program& program) {
  erase_instances(program, [](const program::Operation& operation) {
    return operation.name == "attention.keys_values.input_grad";
  });
}

void skip_ring_step(program::Program& program) {
  erase_instances(program, [](const program::Operation& operation) {
    return operation.name == "attention.step2.merge";
  });
}

void skip_ring_step_backward(program::Program& program) {
  erase_instances(program, [](const program::Operation& operation) {
    return operation.name == "attention.step2.merge.input_grad";
  });
}

void skip_gradient_reduction(program::Program& program) {
  erase_instances(program, [](const program::Operation& operation) {
    const auto* flat = std::get_if<program::FlatCollectiveOp>(&operation.work);
    return flat != nullptr && flat->collective.group == program::Group::DpCp &&
           flat->region == program::Region::Gradients;
  });
}

void skip_loss_reduction(program::Program& program) {
  erase_instances(program, [](const program::Operation& operation) {
    return operation.name == "loss.all_reduce";
  });
}

void do_not_gather_counts(program::Program& program) {
  erase_instances(program, [](const program::Operation& operation) {
    return operation.name.ends_with(".cp_all_gather");
  });
}

void do_not_expand_again(program::Program& program) {
  erase_instances(program, [](const program::Operation& operation) {
    return operation.phase == program::Phase::Recompute && operation.name == "kv_up";
  });
}

struct SeededBug {
  std::string name;
  ContextMethod method;
  Mutation mutate;
};

std::vector<SeededBug> seeded_bugs() {
  return {
      {"dQ scaled", ContextMethod::AllGather, scale_query_gradients},
      {"dQ scaled", ContextMethod::Ring, scale_query_gradients},
      {"dQ scaled", ContextMethod::Ulysses, scale_query_gradients},
      {"zig-zag halves swapped", ContextMethod::AllGather, swap_chunks},
      {"zig-zag halves swapped", ContextMethod::Ulysses, swap_chunks},
      {"keys' gradients not summed", ContextMethod::AllGather, keep_own_keys_gradients},
      {"keys' gradients dropped", ContextMethod::AllGather, skip_keys_gradients},
      {"one ring step skipped", ContextMethod::Ring, skip_ring_step},
      {"one ring step skipped backward", ContextMethod::Ring, skip_ring_step_backward},
      {"keys' gradients dropped", ContextMethod::Ring, skip_keys_gradients},
      {"gradients not reduced over cp", ContextMethod::AllGather, skip_gradient_reduction},
      {"loss of one part of the sequence", ContextMethod::AllGather, skip_loss_reduction},
  };
}

}  // namespace

TEST_CASE("each seeded bug in context parallelism breaks parity", "[parity][context]") {
  ParityJob fixture{.steps = kSteps};
  Plan plan = base_plan(llama_style());
  const RunResult reference = fixture.run_alone(plan);
  plan.parallel = {.cp = 4};
  for (const ContextMethod method : kMethods) {
    plan.context_parallel = method;
    const auto right = fixture.run(plan);
    if (right) CHECK(agrees(*right, reference));
  }
  for (const SeededBug& bug : seeded_bugs()) {
    plan.context_parallel = bug.method;
    const auto wrong = fixture.run(plan, bug.mutate);
    INFO(bug.name << ", " << name_of(bug.method));
    if (wrong) CHECK_FALSE(agrees(*wrong, reference));
  }
}

TEST_CASE("each seeded bug in what routers and latent attention gather breaks parity",
          "[parity][context]") {
  ParityJob fixture{.steps = kSteps};
  const struct {
    std::string name;
    models::ModelSpec model;
    Mutation mutate;
  } bugs[] = {
      {"counts not gathered, of a capacity", capacity_style(), do_not_gather_counts},
      {"counts not gathered, of a balance loss", balanced_style(), do_not_gather_counts},
      {"latents in the order of the ranks", latent_style(), swap_chunks},
      {"latents' gradients not summed", latent_style(), keep_own_keys_gradients},
      {"keys of another layer in the backward pass", latent_style(), do_not_expand_again},
  };
  for (const auto& bug : bugs) {
    Plan plan = base_plan(bug.model);
    const RunResult reference = fixture.run_alone(plan);
    plan.parallel = {.cp = 2};
    const auto wrong = fixture.run(plan, bug.mutate);
    INFO(bug.name);
    if (wrong) CHECK_FALSE(agrees(*wrong, reference));
  }
}

}  // namespace meshplan::test::parity_context
