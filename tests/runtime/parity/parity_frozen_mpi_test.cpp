// Frozen parameters: plans that train a part of a model give the gradients and losses of one rank
// that trains the same part. The gradients are also those of a run that freezes nothing, and what
// is frozen keeps every bit.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iostream>
#include <map>

#include "lower/link.hpp"
#include "program/checks/check.hpp"
#include "program/plan/frozen.hpp"
#include "runtime/parity/parity_job.hpp"
#include "runtime/parity/parity_models.hpp"
#include "runtime/parity/parity_techniques.hpp"

namespace meshplan::test::parity_frozen {
namespace {

using Patterns = std::vector<std::string>;

constexpr int kSteps = 3;
constexpr double kTolerance = 1e-5;

Plan base_plan(const models::ModelSpec& model, const Patterns& frozen) {
  Plan plan = parity_plan(model);
  plan.workload.optimizer.epsilon = 1e-6;
  plan.frozen = frozen;
  return plan;
}

/// Norms of heads, whose weights can be frozen one by one.
models::ModelSpec head_norm_style() {
  models::ModelSpec model = llama_style();
  model.name = "head-norm-style";
  model.qk_norm = true;
  return model;
}

struct Case {
  models::ModelSpec model;
  Patterns frozen;
  ParallelConfig parallel;
  ScheduleKind schedule = ScheduleKind::OneFOneB;
  int zero = 0;
  RecomputeKind recompute = RecomputeKind::None;
  ContextMethod method = ContextMethod::AllGather;
  models::ModuleSet modules = {};  // of a selective recompute
};

const Patterns kEmbedding = {"embedding"};
const Patterns kLowest = {"embedding", "layers.0-1"};
const Patterns kNormsAlone = {"*", "!*norm*"};
const Patterns kHeadAlone = {"*", "!head"};
const Patterns kMiddle = {"layers.1-2", "layers.3.self_attn"};
const Patterns kMatrices = {"*.weight", "!*norm*.weight"};  // of GPT-2: biases and norms are left
const Patterns kHalfNorms = {"*norm*.bias", "layers.2-3.*norm*.weight", "embedding.embed_tokens"};

std::vector<Case> dense_cases() {
  const ScheduleKind kF = ScheduleKind::OneFOneB;
  const RecomputeKind kNone = RecomputeKind::None;
  return {
      {llama_style(), kLowest, {.tp = 2}},
      {llama_style(), kMiddle, {.tp = 2, .dp = 2, .sp = true}},
      {gpt2_style(), kMatrices, {.tp = 2, .sp = true}, kF, 0, RecomputeKind::Selective},
      {gpt2_style(), kHalfNorms, {.tp = 2, .pp = 2, .dp = 2, .sp = true}},
      {gpt2_style(), kEmbedding, {.pp = 2, .dp = 2}, ScheduleKind::GPipe},
      {llama_style(), kLowest, {.pp = 4, .dp = 2}},
      {llama_style(), kHeadAlone, {.pp = 2, .dp = 2}},
      {llama_style(), kLowest, {.pp = 2, .vpp = 2}, ScheduleKind::Interleaved},
      {llama_style(), kMiddle, {.tp = 2, .pp = 2}, ScheduleKind::ZbH1},
      {llama_style(), kLowest, {.pp = 4}, ScheduleKind::ZbH1},
      {llama_style(), kMiddle, {.pp = 2, .vpp = 2, .dp = 2}, ScheduleKind::ZbV},
      {gpt2_style(), kLowest, {.pp = 2, .vpp = 2}, ScheduleKind::ZbV},
      {llama_style(), kLowest, {.pp = 2, .vpp = 2}, ScheduleKind::DualPipeV},
      {llama_style(), kNormsAlone, {.pp = 2, .vpp = 2, .dp = 2}, ScheduleKind::DualPipeV},
      {llama_style(), kNormsAlone, {.tp = 2, .dp = 2, .sp = true}, kF, 1, RecomputeKind::Full},
      {llama_style(), kLowest, {.dp = 4}, kF, 1},
      {gpt2_style(), kMiddle, {.pp = 2, .dp = 2}, kF, 2},
      {llama_style(), kLowest, {.tp = 2, .pp = 2, .dp = 2}, kF, 3, RecomputeKind::Full},
      {llama_style(), kMiddle, {.dp = 4}, kF, 3},
      {llama_style(), kMiddle, {.cp = 2, .dp = 2}},
      {llama_style(), kLowest, {.tp = 2, .cp = 2}, kF, 0, kNone, ContextMethod::Ring},
      {llama_style(), kHeadAlone, {.cp = 2, .pp = 2}, kF, 0, kNone, ContextMethod::Ulysses},
      {head_norm_style(), {"*.q_norm", "embedding"}, {.tp = 2, .sp = true}},
      {head_norm_style(), {"*", "!*.k_norm"}, {.pp = 2}, ScheduleKind::ZbH1},
  };
}

/// Layers of which nothing is trained recompute what only the gradient of their input reads: no
/// weight gradient asks for it first.
std::vector<Case> recomputed_cases() {
  const ScheduleKind kF = ScheduleKind::OneFOneB;
  const Patterns kLayer = {"layers.0"};
  const Patterns kMlp = {"layers.2.mlp"};
  const RecomputeKind kFull = RecomputeKind::Full, kSelective = RecomputeKind::Selective;
  const ContextMethod kGather = ContextMethod::AllGather;
  const models::ModuleSet mlp = {models::Module::Mlp};
  return {
      {gpt2_style(), kLayer, {}, kF, 0, kFull},
      {gpt2_style(), kMlp, {}, kF, 0, kFull},
      {gpt2_style(), kLayer, {}, kF, 0, kSelective, kGather, mlp},
      {gpt2_style(), kMlp, {}, kF, 0, kSelective, kGather, mlp},
      {gpt2_style(), kMlp, {.tp = 2, .sp = true}, kF, 0, kFull},
      {gpt2_style(), kMlp, {.pp = 2}, ScheduleKind::ZbH1, 0, kFull},
      {gpt2_style(), kLayer, {.pp = 2, .vpp = 2}, ScheduleKind::DualPipeV, 0, kFull},
      {gpt2_style(), kMlp, {.cp = 2, .dp = 2}, kF, 3, kFull, ContextMethod::Ring},
      {post_norm_style(), kMlp, {.dp = 2}, kF, 0, kSelective, kGather, mlp},
      {gemma2_style(), kMlp, {.tp = 2}, kF, 0, kFull},
  };
}

std::vector<Case> expert_cases() {
  const Patterns router = {"*.mlp.gate"};
  const Patterns experts = {"*.experts"};
  return {
      {mixtral_style(), router, {.dp = 2, .ep = 2}},
      {mixtral_style(), experts, {.tp = 2, .dp = 2, .ep = 2, .sp = true}},
      {mixtral_style(), {"embedding", "layers.0"}, {.dp = 4, .ep = 2}, ScheduleKind::OneFOneB, 1},
      {gpt_oss_style(), {"*sinks", "*.experts.*.weight"}, {.dp = 4, .ep = 2, .etp = 2}},
      {gpt_oss_style(), {"*.bias"}, {.tp = 2, .dp = 2, .ep = 2, .sp = true}},
      {balanced_style(), router, {.pp = 2, .dp = 2, .ep = 2}, ScheduleKind::ZbH1},
      {deepseek_style(), experts, {.pp = 2, .dp = 2, .ep = 2}},
      {deepseek_style(),
       {"layers.0-1.self_attn"},
       {.tp = 2, .dp = 2, .sp = true},
       ScheduleKind::OneFOneB,
       3},
  };
}

Plan plan_of(const Case& one) {
  Plan plan = base_plan(one.model, one.frozen);
  plan.parallel = one.parallel;
  plan.schedule = one.schedule;
  plan.zero_stage = one.zero;
  plan.recompute = {.kind = one.recompute, .modules = one.modules};
  plan.context_parallel = one.method;
  return plan;
}

using Values = std::map<std::string, std::vector<double>>;

/// Values of the parameters that are trained, or of those that are frozen.
Values part_of(const Values& all, const Plan& plan, bool frozen) {
  const program::FrozenParameters of_plan(plan.frozen, models::build_graph(plan.model));
  Values part = all;
  std::erase_if(part, [&](const auto& entry) { return of_plan.contains(entry.first) != frozen; });
  return part;
}

/// What a case is compared with, each from one rank.
struct References {
  const RunResult& same;        // that trains the same
  const RunResult& everything;  // that trains all
  const Values& before;         // weights
};

struct FrozenJob : ParityJob {
  FrozenJob() : ParityJob{.steps = kSteps} {}

  /// Collective over the job.
  References references_of(const Case& one) {
    const auto [entry, fresh] = initial.try_emplace(one.model.name);
    if (fresh) {
      const int self = world->rank();
      const auto group = world->create_group(std::span(&self, 1), "alone");
      entry->second = run_plan(base_plan(one.model, {}), 0, *group, *backend).weights;
    }
    return {run_of(one.model, one.frozen), run_of(one.model, {}), entry->second};
  }

 private:
  const RunResult& run_of(const models::ModelSpec& model, const Patterns& frozen) {
    const std::string key = fmt::format("{} {}", model.name, fmt::join(frozen, ","));
    const auto [entry, fresh] = runs.try_emplace(key);
    if (fresh) entry->second = run_alone(base_plan(model, frozen));
    return entry->second;
  }
  std::map<std::string, RunResult> runs;
  std::map<std::string, Values> initial;
};

struct Agreement {
  GradientError gradients;   // of what is trained, with one rank that trains the same
  GradientError everything;  // with one rank that trains all
  double scalars = 0;
  bool still = false;  // frozen weights have kept every bit
  bool moved = false;  // all others have not
  bool holds() const {
    return gradients.relative <= kTolerance && gradients.small_absolute <= 1e-11 &&
           everything.relative <= kTolerance && scalars <= kTolerance && still && moved;
  }
};

Agreement compare(const References& references, const Plan& plan, const RunResult& run) {
  const auto gradients_with = [&](const RunResult& other) {
    return compare_gradients(part_of(run.gradients, plan, false),
                             part_of(other.gradients, plan, false));
  };
  Agreement agreement{
      .gradients = gradients_with(references.same),
      .everything = gradients_with(references.everything),
      .scalars = scalar_error(run, references.same),
      .still = part_of(run.weights, plan, true) == part_of(references.before, plan, true),
      .moved = true};
  for (const auto& [name, values] : part_of(run.weights, plan, false))
    agreement.moved = agreement.moved && values != references.before.at(name);
  return agreement;
}

void check_cases(const std::vector<Case>& cases, const std::string& title) {
  FrozenJob job;
  double worst = 0;
  for (const Case& one : cases) {
    const Plan plan = plan_of(one);
    CAPTURE(one.model.name, to_string(plan.parallel), static_cast<int>(plan.schedule),
            plan.zero_stage, fmt::format("{}", fmt::join(plan.frozen, ",")));
    REQUIRE(check(plan).empty());
    const References references = job.references_of(one);
    const auto run = job.run(plan);
    if (!run) continue;
    const Agreement agreement = compare(references, plan, *run);
    worst = std::max(worst, agreement.gradients.relative);
    if (job.world->rank() == 0) record_parity("frozen", plan, agreement.gradients.relative);
    CAPTURE(agreement.gradients.worst, agreement.gradients.relative, agreement.everything.relative,
            agreement.scalars);
    CHECK(agreement.gradients.relative <= kTolerance);
    CHECK(agreement.gradients.small_absolute <= 1e-11);
    CHECK(agreement.everything.relative <= kTolerance);
    CHECK(agreement.scalars <= kTolerance);
    CHECK(agreement.still);
    CHECK(agreement.moved);
  }
  if (job.world->rank() == 0)
    std::cout << fmt::format("{}: {} plans, worst relative gradient error {:.2e}\n", title,
                             cases.size(), worst);
}

}  // namespace

TEST_CASE("plans that freeze a part of a dense model train the rest as one rank does",
          "[parity][frozen]") {
  check_cases(dense_cases(), "frozen parts of dense models");
}

TEST_CASE("plans that freeze what they recompute train the rest as one rank does",
          "[parity][frozen]") {
  check_cases(recomputed_cases(), "frozen parts that are recomputed");
}

TEST_CASE("plans that freeze routers or experts train the rest as one rank does",
          "[parity][frozen]") {
  check_cases(expert_cases(), "frozen parts of models with experts");
}

TEST_CASE("each seeded bug of frozen parameters breaks parity", "[parity][frozen]") {
  using program::OperationInstance;
  using program::Program;
  // The last update reaches into the weights behind those that are trained, and decays them.
  const auto frozen_weights_decay = [](Program& program) {
    program::StepOp* last = nullptr;
    for (program::Operation& operation : program.step_operations)
      if (auto* step = std::get_if<program::StepOp>(&operation.work);
          step != nullptr && step->work == program::StepWork::OptimizerUpdate &&
          (last == nullptr || step->range.end > last->range.end))
        last = step;
    last->range.end = program.buckets.back().range.begin + 32;
    last->weight_decay = true;
    for (const auto region :
         {program::Region::Gradients, program::Region::Moment1, program::Region::Moment2})
      program.memory.regions[static_cast<std::size_t>(region)].stride_bytes += 128;
    program::link(program);
  };
  // A frozen layer hands on the gradient of its output as if it were that of its input.
  const auto no_gradient_through_frozen = [](Program& program) {
    std::erase_if(program.instances, [&](const OperationInstance& instance) {
      return instance.layer && instance.operation.backward &&
             program::layer_of(program, instance).layer == 1;
    });
    program::link(program);
  };
  FrozenJob job;
  const Case one{llama_style(), kMiddle, {.dp = 2}};
  const Plan plan = plan_of(one);
  const References references = job.references_of(one);
  for (const Mutation& bug :
       {Mutation(frozen_weights_decay), Mutation(no_gradient_through_frozen)}) {
    const auto right = job.run(plan);
    const auto wrong = job.run(plan, bug);
    if (right) CHECK(compare(references, plan, *right).holds());
    if (wrong) CHECK_FALSE(compare(references, plan, *wrong).holds());
  }
}

}  // namespace meshplan::test::parity_frozen
