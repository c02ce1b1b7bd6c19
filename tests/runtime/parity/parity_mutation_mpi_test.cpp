// Bugs seeded into lowered programs: parity must see every one of them. Prints each with what
// caught it:   mpiexec -n 8 build/release/tests/parity_mutation_mpi_test
#include <algorithm>
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "cpu_backend.hpp"
#include "runtime/parity/mutations.hpp"
#include "runtime/parity/parity_precision.hpp"

namespace meshplan::test::parity_mutation {
namespace {

using program::Operation;
using program::OperationInstance;
using program::Phase;
using program::StepWork;

struct SeededBug {
  std::string name;
  Plan plan;
  Mutation mutate;
  bool forgets_loss_scale = false;  // a bug of the kernels, which no program shows
  bool shows_in_losses_only = false;
};

/// Divides nothing by the loss scale.
class ForgetfulBackend final : public kernels::CpuBackend {
 public:
  ForgetfulBackend() : CpuBackend(1, kernels::best_cpu_isa()) {}
  void run(const kernels::Operation& operation) override {
    kernels::Operation wrong = operation;
    if (auto* clip = std::get_if<kernels::ClipCoefficient>(&wrong)) clip->applied_scale = nullptr;
    CpuBackend::run(wrong);
  }
};

// ---------------------------------------------------------------- the list

Plan plan_of(const models::ModelSpec& model, const ParallelConfig& parallel,
             ScheduleKind schedule = ScheduleKind::OneFOneB) {
  Plan plan = base_plan(model);
  plan.parallel = parallel;
  plan.schedule = schedule;
  return plan;
}

Plan recomputing(Plan plan) {
  plan.recompute.kind = RecomputeKind::Full;
  return plan;
}

Plan in_fp16(Plan plan) {
  plan.workload.precision = DType::F16;
  return plan;
}

std::vector<SeededBug> tensor_and_data_parallel_bugs() {
  return {
      {"norm gradients not reduced under sp", plan_of(llama_style(), {.tp = 2, .sp = true}),
       without("sequence_gradients.all_reduce")},
      {"last micro-batch dropped", plan_of(llama_style(), {.pp = 2}), drop_last_microbatch},
      {"mean of means", plan_of(llama_style(), {.dp = 2}), each_operation([](Operation& operation) {
         if (is_gradient_bucket(operation))
           std::get<program::FlatCollectiveOp>(operation.work).collective.reduce =
               program::ReduceOp::Avg;
       })},
      // Biases start at zero, so this one shows once they have moved.
      {.name = "bias added tp times",
       .plan = plan_of(gpt2_style(), {.tp = 2}),
       .mutate = add_bias_on_every_rank,
       .shows_in_losses_only = true},
      // Each rank normalizes over its own part of the vocabulary.
      {"head not sharded", plan_of(llama_style(), {.tp = 2}),
       each_operation([](Operation& operation) {
         if (operation.name == "loss.all_gather")
           std::get<program::CollectiveOp>(operation.work).group = program::Group::Embedding;
       })},
      {"copied heads not summed", plan_of(with_key_heads(llama_style(), 2), {.tp = 4}),
       without("copied_heads.all_reduce")},
      {"largest instead of sum over tp", plan_of(llama_style(), {.tp = 2}),
       each_operation([](Operation& operation) {
         if (operation.name == "mlp_down.all_reduce")
           std::get<program::CollectiveOp>(operation.work).reduce = program::ReduceOp::Max;
       })},
      {"last bucket not reduced", plan_of(llama_style(), {.dp = 2}), drop_last_bucket},
      {.name = "norm counts what tp replicates on every rank",
       .plan = plan_of(llama_style(), {.tp = 2}),
       .mutate = each_step_operation(StepWork::SquaredNorm,
                                     [](program::StepOp& step) { step.tp_copies = 1; })},
      {.name = "norms decayed",
       .plan = plan_of(llama_style(), {.dp = 2}),
       .mutate = each_step_operation(StepWork::OptimizerUpdate,
                                     [](program::StepOp& step) { step.weight_decay = true; }),
       .shows_in_losses_only = true},
      {.name = "some parameters not updated",
       .plan = plan_of(llama_style(), {.dp = 2}),
       .mutate = without([](const auto& /*instance*/, const Operation& operation) {
         const auto* step = std::get_if<program::StepOp>(&operation.work);
         return step != nullptr && step->work == StepWork::OptimizerUpdate && !step->weight_decay;
       }),
       .shows_in_losses_only = true},
  };
}

std::vector<SeededBug> pipeline_bugs() {
  return {
      {"tied embedding's gradients not summed", plan_of(gpt2_style(), {.pp = 2}),
       without("tied_embedding.all_reduce")},
      {"W pass skipped once", plan_of(llama_style(), {.pp = 2}, ScheduleKind::ZbH1),
       skip_one_weight_gradient},
      {"last micro-batch overwrites the gradient", plan_of(llama_style(), {.pp = 2}),
       overwrite_gradients},
      {"two received micro-batches swapped", plan_of(llama_style(), {.pp = 2}, ScheduleKind::GPipe),
       swap_received_microbatches},
      {"two layers' weights swapped",
       plan_of(llama_style(), {.pp = 2, .vpp = 2}, ScheduleKind::Interleaved), swap_layers},
      {"two micro-batches keep activations in one place",
       plan_of(llama_style(), {.pp = 2, .vpp = 2}, ScheduleKind::DualPipeV), share_kept_place},
      {"a norm not recomputed", recomputing(plan_of(llama_style(), {.pp = 2})),
       without([](const OperationInstance& instance, const Operation& operation) {
         return instance.microbatch == 1 && operation.phase == Phase::Recompute &&
                operation.name.find("norm") != std::string::npos;
       })},
  };
}

std::vector<SeededBug> precision_bugs() {
  return {{.name = "loss scale not undone",
           .plan = in_fp16(plan_of(llama_style(), {.dp = 2})),
           .forgets_loss_scale = true},
          {"last bucket not reduced, in fp16", in_fp16(plan_of(llama_style(), {.dp = 2})),
           drop_last_bucket}};
}

/// Bugs of further techniques join here.
std::vector<SeededBug> seeded_bugs() {
  std::vector<SeededBug> bugs;
  for (const auto& list : {tensor_and_data_parallel_bugs(), pipeline_bugs(), precision_bugs()})
    bugs.insert(bugs.end(), list.begin(), list.end());
  return bugs;
}

// ---------------------------------------------------------------- the verdict

/// What a run must agree with, by model and precision.
class References {
 public:
  explicit References(Fixture& fixture) : fixture_(fixture) {}
  const Reference& of(const Plan& plan) {
    const auto key = std::pair(fmt::format("{} {}", plan.model.name, plan.model.num_kv_heads),
                               plan.workload.precision);
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    Plan alone = plan;
    alone.schedule = ScheduleKind::OneFOneB;
    return known_.emplace(key, reference_of(fixture_, alone)).first->second;
  }

 private:
  Fixture& fixture_;
  std::map<std::pair<std::string, DType>, Reference> known_;
};

/// Which of parity's checks fails first; empty if the run agrees.
std::string caught_by(const RunResult& run, const Reference& reference, const Plan& plan) {
  const bool half = plan.workload.precision != DType::F32;
  const double tolerance = half ? half_tolerance(plan) : 1e-5;
  const GradientError error = half ? compare_gradients(run, reference.run, kSmallInHalf)
                                   : compare_gradients(run, reference.run);
  const double small = half ? tolerance * kSmallInHalf : 1e-11;
  if (!(error.relative <= tolerance))
    return fmt::format("gradient of {}: {:.1e} off", error.worst, error.relative);
  if (!(error.small_absolute <= small))
    return fmt::format("small gradients: {:.1e} off", error.small_absolute);
  const double norm = reference.run.gradient_norms.front();
  const double norm_error = std::abs(run.gradient_norms.front() / norm - 1);
  if (!(norm_error <= (half ? tolerance : 1e-6)))
    return fmt::format("gradient norm: {:.1e} off", norm_error);
  for (std::size_t step = 0; step < kSteps && !half; ++step) {
    const double distance = std::abs(run.losses[step] - reference.run.losses[step]);
    if (!(distance <= 4 * reference.spread[step]))
      return fmt::format("loss of step {}: {:.1e} off", step + 1, distance);
  }
  return {};
}

}  // namespace

TEST_CASE("each seeded bug breaks parity, and nothing else does", "[parity][mutation]") {
  Fixture fixture;
  References references(fixture);
  ForgetfulBackend forgetful;
  int caught = 0;
  const std::vector<SeededBug> bugs = seeded_bugs();
  CHECK(bugs.size() >= 15);
  for (const SeededBug& bug : bugs) {
    const Reference& reference = references.of(bug.plan);
    const auto right = fixture.run(bug.plan);
    const auto wrong =
        fixture.run(bug.plan, bug.mutate, {}, bug.forgets_loss_scale ? &forgetful : nullptr);
    if (!wrong) continue;
    const std::string how = caught_by(*wrong, reference, bug.plan);
    INFO(bug.name);
    CHECK(caught_by(*right, reference, bug.plan).empty());
    CHECK_FALSE(how.empty());
    if (!how.empty()) ++caught;
    if (fixture.world->rank() == 0)
      std::cout << fmt::format("{:<46} {}\n", bug.name, how.empty() ? "NOT CAUGHT" : how);
  }
  if (fixture.world->rank() == 0)
    std::cout << fmt::format("{} of {} seeded bugs caught\n", caught, bugs.size());
}

TEST_CASE("bf16's tolerance still catches seeded bugs", "[parity][mutation]") {
  Fixture fixture;
  References references(fixture);
  for (SeededBug& bug : tensor_and_data_parallel_bugs()) {
    if (bug.shows_in_losses_only || bug.name.starts_with("norm counts")) continue;
    bug.plan.workload.precision = DType::BF16;
    const Reference& reference = references.of(bug.plan);
    const auto right = fixture.run(bug.plan);
    const auto wrong = fixture.run(bug.plan, bug.mutate);
    INFO(bug.name);
    if (right) CHECK(caught_by(*right, reference, bug.plan).empty());
    if (wrong) CHECK_FALSE(caught_by(*wrong, reference, bug.plan).empty());
  }
}

}  // namespace meshplan::test::parity_mutation
