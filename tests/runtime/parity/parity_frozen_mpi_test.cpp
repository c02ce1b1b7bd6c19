// Frozen parameters: plans that train a part of a model give the gradients and losses of one rank
// that trains the same part. The gradients are also those of a run that freezes nothing, and what
// is frozen keeps every bit. Adapters are what is left to train of a model that is frozen.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iostream>
#include <map>

#include "lower/link.hpp"
#include "models/adapters.hpp"
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

/// Adapters beside all linears but the router. @param alpha  0: not scaled
models::ModelSpec with_adapters(models::ModelSpec model, double alpha = 12) {
  model.name += "-lora";
  model.adapters = models::AdapterSpec{.rank = 4, .alpha = alpha};
  model.adapters->modules = models::linear_modules(model);
  return model;
}

/// B begins at zero, and so would the gradient of A: here it begins as A does.
const Variant kRandomB{.edit_graph = [](models::ModelGraph& graph) {
  for (models::LayerGraph& kind : graph.kinds)
    for (models::Tensor& tensor : kind.tensors)
      if (tensor.name.ends_with(".lora_b.weight")) tensor.init = models::Init::Normal;
}};

struct Case {
  models::ModelSpec model;
  Patterns frozen;
  ParallelConfig parallel;
  ScheduleKind schedule = ScheduleKind::OneFOneB;
  int zero = 0;
  RecomputeKind recompute = RecomputeKind::None;
  ContextMethod method = ContextMethod::AllGather;
  models::ModuleSet modules = {};  // of a selective recompute
  int shard_group = 0;
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

std::vector<Case> adapter_cases() {
  const ScheduleKind kF = ScheduleKind::OneFOneB;
  const RecomputeKind kNone = RecomputeKind::None, kFull = RecomputeKind::Full;
  const Patterns kAdapters = models::all_but_adapters();
  Patterns upper = kAdapters;
  upper.emplace_back("layers.0-1");
  const models::ModelSpec llama = with_adapters(llama_style()),
                          gpt2 = with_adapters(gpt2_style(), 0);
  models::ModelSpec attention = with_adapters(mixtral_style());
  attention.adapters->modules = {"qkv_proj", "o_proj"};
  const models::ModelSpec latent = with_adapters(latent_style());
  models::ModelSpec chooses = latent_style();
  chooses.name = "sparse-style";
  chooses.init_std = kUnevenStd;
  chooses.sparse_attention = sparse_latent_style().sparse_attention;
  const models::ModelSpec sparse = with_adapters(chooses);
  return {
      {llama, kAdapters, {}},
      {llama, kAdapters, {.tp = 2}},
      {llama, kAdapters, {.tp = 2, .dp = 2, .sp = true}, kF, 1, kFull},
      {llama, kAdapters, {.tp = 8, .sp = true}},  // more ranks than heads of keys
      {llama, kAdapters, {.pp = 2, .vpp = 2, .dp = 2}, ScheduleKind::Interleaved},
      {llama, kAdapters, {.tp = 2, .pp = 2, .sp = true}, ScheduleKind::ZbH1},
      {llama, upper, {.pp = 4, .dp = 2}},
      {llama, upper, {.pp = 2, .vpp = 2}, ScheduleKind::DualPipeV},
      {llama, kAdapters, {.tp = 2, .dp = 4}, kF, 3},
      {llama, kAdapters, {.cp = 2, .dp = 2}, kF, 2, kNone, ContextMethod::Ring},
      {llama, kAdapters, {.tp = 2, .cp = 2, .sp = true}},
      {gpt2, kAdapters, {.tp = 2, .dp = 2, .sp = true}, kF, 0, RecomputeKind::Selective},
      {gpt2, kAdapters, {.pp = 2, .dp = 2}, ScheduleKind::GPipe, 1},
      {with_adapters(gemma2_style()), kAdapters, {.tp = 2, .sp = true}, kF, 0, kFull},
      {attention, kAdapters, {.tp = 2, .dp = 2, .ep = 2, .sp = true}},
      {latent, kAdapters, {.tp = 2, .dp = 2, .sp = true}},
      {sparse, kAdapters, {.tp = 2, .dp = 2, .sp = true}},
      {sparse, kAdapters, {.pp = 2}, kF, 0, kFull},
  };
}

/// Frozen weights that ZeRO-3 divides, too.
std::vector<Case> divided_cases() {
  const ScheduleKind kF = ScheduleKind::OneFOneB;
  const RecomputeKind kNone = RecomputeKind::None, kFull = RecomputeKind::Full;
  const ContextMethod kGather = ContextMethod::AllGather;
  const Patterns kMlps = {"*.mlp"}, kEveryOther = {"layers.0", "layers.2"},
                 kExperts = {"*.experts"}, kAdapters = models::all_but_adapters();
  const models::ModelSpec lora = with_adapters(llama_style());
  models::ModelSpec attention = with_adapters(mixtral_style());
  attention.adapters->modules = {"qkv_proj", "o_proj"};
  return {
      {llama_style(), kLowest, {.dp = 8}, kF, 3},
      {llama_style(), kMlps, {.dp = 4}, kF, 3, kFull},
      {llama_style(), kEveryOther, {.tp = 2, .dp = 2, .sp = true}, kF, 3, RecomputeKind::Selective},
      {llama_style(), kNormsAlone, {.tp = 2, .dp = 2, .sp = true}, kF, 3, kFull},
      {llama_style(), kHeadAlone, {.pp = 2, .dp = 4}, kF, 3},
      {llama_style(), kEveryOther, {.pp = 2, .vpp = 2, .dp = 2}, ScheduleKind::Interleaved, 3},
      {llama_style(), kMlps, {.dp = 8}, kF, 3, kNone, kGather, {}, 4},
      {llama_style(), kMiddle, {.cp = 2, .dp = 4}, kF, 3, kNone, ContextMethod::Ring, {}, 2},
      {gpt2_style(), kHalfNorms, {.dp = 4}, kF, 3},                            // tied: whole
      {gpt2_style(), kEmbedding, {.pp = 2, .dp = 2}, ScheduleKind::GPipe, 3},  // on both stages
      {gpt2_style(), kMatrices, {.tp = 2, .dp = 2, .sp = true}, kF, 3},
      {mixtral_style(), kExperts, {.dp = 4, .ep = 2}, kF, 3},
      {mixtral_style(), kExperts, {.tp = 2, .dp = 4, .ep = 2, .sp = true}, kF, 3, kFull},
      {mixtral_style(),
       {"embedding", "layers.0"},
       {.dp = 8, .ep = 2},
       kF,
       3,
       kNone,
       kGather,
       {},
       4},
      {gpt_oss_style(), {"*.experts.*.weight"}, {.dp = 4, .ep = 2, .etp = 2}, kF, 3},
      {balanced_style(), {"*.mlp.gate"}, {.pp = 2, .dp = 2, .ep = 2}, kF, 3},
      {deepseek_style(), kExperts, {.pp = 2, .dp = 4, .ep = 2}, kF, 3},
      {lora, kAdapters, {.dp = 8}, kF, 3},
      {lora, kAdapters, {.dp = 8}, kF, 3, kFull, kGather, {}, 2},
      {lora, kAdapters, {.pp = 2, .dp = 4}, kF, 3, kFull},
      {lora, kAdapters, {.pp = 2, .vpp = 2, .dp = 2}, ScheduleKind::Interleaved, 3},
      {lora, kAdapters, {.tp = 2, .cp = 2, .dp = 2, .sp = true}, kF, 3},
      {attention, kAdapters, {.dp = 4, .ep = 2}, kF, 3},
      {with_adapters(latent_style()), kAdapters, {.tp = 2, .dp = 2, .sp = true}, kF, 3},
  };
}

Plan plan_of(const Case& one) {
  Plan plan = base_plan(one.model, one.frozen);
  plan.parallel = one.parallel;
  plan.schedule = one.schedule;
  plan.zero_stage = one.zero;
  plan.zero_shard_group = one.shard_group;
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
      entry->second = run_plan(base_plan(one.model, {}), 0, *group, *backend, {}, kRandomB).weights;
    }
    return {run_of(one.model, one.frozen), run_of(one.model, {}), entry->second};
  }

 private:
  const RunResult& run_of(const models::ModelSpec& model, const Patterns& frozen) {
    const std::string key = fmt::format("{} {}", model.name, fmt::join(frozen, ","));
    const auto [entry, fresh] = runs.try_emplace(key);
    if (fresh)
      entry->second = run_plan(base_plan(model, frozen), steps, *alone(), *backend, {}, kRandomB);
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
    const auto run = job.run(plan, {}, kRandomB);
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

TEST_CASE("plans that divide frozen weights train the rest as one rank does",
          "[parity][frozen][zero]") {
  check_cases(divided_cases(), "divided frozen weights");
}

TEST_CASE("plans that train adapters alone train them as one rank does", "[parity][frozen]") {
  check_cases(adapter_cases(), "adapters");
}

// y = W x + s B A x, so with the gradient of W, which the linear makes without its adapters,
// dB = s dW A^T and dA = s B^T dW (Hu et al. 2021, LoRA, section 4.1; Goodfellow et al. 2016, 6.5).
TEST_CASE("gradients of adapters follow from those of the weights beside them",
          "[parity][frozen]") {
  FrozenJob job;
  for (const double alpha : {0.0, 12.0}) {
    Plan plan = base_plan(with_adapters(llama_style(), alpha), {});
    plan.workload.optimizer.learning_rate = 1e-12;  // weights stay what gradients were taken at
    const RunResult run = run_plan(plan, 1, *job.alone(), *job.backend, {}, kRandomB);
    int compared = 0;
    for (const auto& [name, of_a] : run.gradients) {
      const std::string_view suffix = ".lora_a.weight";
      if (!name.ends_with(suffix)) continue;
      const std::string linear = name.substr(0, name.size() - suffix.size());
      const std::vector<double>& of_b = run.gradients.at(linear + ".lora_b.weight");
      const std::vector<double>& of_w = run.gradients.at(linear + ".weight");
      const std::vector<double>& a = run.weights.at(name);
      const std::vector<double>& b = run.weights.at(linear + ".lora_b.weight");
      const auto& adapters = *plan.model.adapters;
      const std::size_t rank = static_cast<std::size_t>(adapters.rank);
      const std::size_t in = a.size() / rank, out = b.size() / rank;
      REQUIRE(of_w.size() == in * out);
      Values expected{{"a", std::vector(a.size(), 0.0)}, {"b", std::vector(b.size(), 0.0)}};
      for (std::size_t o = 0; o < out; ++o)
        for (std::size_t r = 0; r < rank; ++r)
          for (std::size_t i = 0; i < in; ++i) {
            const double dw = adapters.scale() * of_w[o * in + i];
            expected["a"][r * in + i] += b[o * rank + r] * dw;
            expected["b"][o * rank + r] += dw * a[r * in + i];
          }
      const GradientError error = compare_gradients(Values{{"a", of_a}, {"b", of_b}}, expected);
      CAPTURE(linear, alpha, error.worst);
      CHECK(error.relative <= kTolerance);
      ++compared;
    }
    CHECK(compared == 4 * plan.model.num_layers);
  }
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
  // ZeRO-3: the last gather of frozen weights is left out, so another unit's are in their slot.
  const auto not_gathered = [](Program& program) {
    for (auto i = program.instances.rbegin(); i != program.instances.rend(); ++i) {
      const auto* flat = std::get_if<program::FlatCollectiveOp>(&operation_of(program, *i).work);
      if (flat == nullptr || flat->region != program::Region::GatheredWeights ||
          !program.buckets[static_cast<std::size_t>(*flat->bucket)].frozen)
        continue;
      program.instances.erase(std::next(i).base());
      break;
    }
    program::link(program);
  };
  FrozenJob job;
  const Case whole{llama_style(), kMiddle, {.dp = 2}};
  const Case divided{llama_style(), kMiddle, {.dp = 2}, ScheduleKind::OneFOneB, 3};
  for (const auto& [one, bug] : {std::pair(whole, Mutation(frozen_weights_decay)),
                                 std::pair(whole, Mutation(no_gradient_through_frozen)),
                                 std::pair(divided, Mutation(not_gathered))}) {
    const Plan plan = plan_of(one);
    const References references = job.references_of(one);
    const auto right = job.run(plan, {}, kRandomB);
    const auto wrong = job.run(plan, bug, kRandomB);
    if (right) CHECK(compare(references, plan, *right).holds());
    if (wrong) CHECK_FALSE(compare(references, plan, *wrong).holds());
  }
}

}  // namespace meshplan::test::parity_frozen
