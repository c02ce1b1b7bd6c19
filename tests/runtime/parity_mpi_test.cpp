// The test that everything rests on: any valid plan gives the same losses and gradients as one
// rank.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <iostream>
#include <map>

#include "kernels/cpu_backend.hpp"
#include "mpi_test_session.hpp"
#include "program/lower.hpp"
#include "runtime/mpi_communicator.hpp"
#include "runtime/parity_support.hpp"

namespace meshplan::test {
namespace {

using program::ParallelConfig;
using program::Plan;
using program::RecomputeKind;
using program::ScheduleKind;

constexpr int kSteps = 5;
constexpr int kMaxRanks = 8;

Plan base_plan(const models::ModelSpec& model) {
  Plan plan;
  plan.model = model;
  plan.workload.seq_len = 16;
  plan.workload.global_batch_size = 8;
  plan.workload.optimizer.learning_rate = 1e-2;
  plan.workload.optimizer.warmup_steps = 2;
  plan.bucket_bytes = 64 << 10;  // several buckets even in a small model
  return plan;
}

struct Fixture {
  std::unique_ptr<runtime::Communicator> world = runtime::make_mpi_world(mpi_session(), {});
  std::unique_ptr<kernels::Backend> backend = kernels::make_cpu_backend(1);

  /// Runs on the first ranks of the job; the others get nothing.
  std::optional<RunResult> run(const Plan& plan, const Mutation& mutate = {},
                               const Variant& variant = {}) {
    std::vector<int> ranks(static_cast<std::size_t>(plan.parallel.world_size()));
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
    const auto group = world->create_group(ranks, "plan");
    if (group == nullptr) return std::nullopt;
    return run_plan(plan, kSteps, *group, *backend, mutate, variant);
  }

  /// One rank, on every rank of the job.
  RunResult run_alone(const Plan& plan) {
    const int self = world->rank();
    const auto group = world->create_group(std::span(&self, 1), "alone");
    return run_plan(plan, kSteps, *group, *backend);
  }
};

/// The one-rank run, and how far its losses move when the sums are taken in another order.
struct Reference {
  RunResult run;
  std::vector<double> spread;  // by step
};

/// @param plan  whose model and workload one rank runs
Reference reference_of(Fixture& fixture, Plan plan) {
  plan.parallel = {};
  plan.layers_per_stage.clear();
  plan.recompute = {};
  plan.micro_batch_size = 1;
  Reference reference{.run = fixture.run_alone(plan), .spread = std::vector<double>(kSteps, 0.0)};
  for (const int micro_batch : {2, 4, 8}) {
    plan.micro_batch_size = micro_batch;
    const RunResult other = fixture.run_alone(plan);
    for (std::size_t step = 0; step < kSteps; ++step)
      reference.spread[step] = std::max(reference.spread[step],
                                        std::abs(other.losses[step] - reference.run.losses[step]));
  }
  // Later steps inherit what earlier ones accumulated, and equal bits by luck are no tolerance.
  double floor = 1e-7 * reference.run.losses.front();
  for (double& spread : reference.spread) floor = spread = std::max(spread, floor);
  return reference;
}

std::vector<Plan> all_plans(const models::ModelSpec& model) {
  std::vector<Plan> plans;
  for (const int tp : {1, 2, 4})
    for (const bool sp : {false, true})
      for (const int pp : {1, 2, 4})
        for (const int dp : {1, 2, 4, 8})
          for (const ScheduleKind schedule : {ScheduleKind::OneFOneB, ScheduleKind::GPipe}) {
            const ParallelConfig parallel{.tp = tp, .pp = pp, .dp = dp, .sp = sp};
            if (parallel.world_size() > kMaxRanks || (sp && tp == 1)) continue;
            if (pp == 1 && schedule == ScheduleKind::GPipe) continue;
            Plan plan = base_plan(model);
            plan.parallel = parallel;
            plan.schedule = schedule;
            // Micro-batch and recompute take turns, so that every axis meets each of them.
            const auto turn = plans.size();
            plan.micro_batch_size = turn % 2 == 0 || 8 / dp < 2 ? 1 : 2;
            plan.recompute.kind = static_cast<RecomputeKind>(turn % 3);
            if (turn % 5 == 4 && pp == 2) plan.layers_per_stage = {1, 3};
            plans.push_back(plan);
          }
  return plans;
}

/// Chunks and split backwards: on every axis, with embedding and head alone on a stage, and with
/// micro-batches that are no multiple of pp.
std::vector<Plan> scheduled_plans(const models::ModelSpec& model) {
  std::vector<Plan> plans;
  const auto add = [&](ScheduleKind schedule, const ParallelConfig& parallel,
                       std::vector<int> layers = {}) {
    Plan plan = base_plan(model);
    plan.schedule = schedule;
    plan.parallel = parallel;
    plan.layers_per_stage = std::move(layers);
    plan.recompute.kind = static_cast<RecomputeKind>(plans.size() % 3);
    plans.push_back(plan);
  };
  add(ScheduleKind::OneFOneB, {});  // the reference
  add(ScheduleKind::Interleaved, {.pp = 2, .vpp = 2});
  add(ScheduleKind::Interleaved, {.pp = 1, .vpp = 4});
  add(ScheduleKind::Interleaved, {.pp = 3, .vpp = 2}, {0, 1, 1, 1, 1, 0});
  add(ScheduleKind::Interleaved, {.tp = 2, .pp = 2, .vpp = 2, .dp = 2, .sp = true});
  add(ScheduleKind::ZbH1, {.pp = 2, .dp = 2}, {1, 3});
  add(ScheduleKind::ZbH1, {.tp = 2, .pp = 4, .sp = true});
  add(ScheduleKind::ZbH1, {.tp = 4, .pp = 2});
  add(ScheduleKind::ZbV, {.pp = 2, .vpp = 2});
  add(ScheduleKind::ZbV, {.pp = 2, .vpp = 2, .dp = 4}, {0, 1, 3, 0});
  add(ScheduleKind::ZbV, {.pp = 3, .vpp = 2}, {0, 1, 1, 1, 1, 0});
  add(ScheduleKind::ZbV, {.tp = 2, .pp = 2, .vpp = 2, .dp = 2, .sp = true});
  add(ScheduleKind::DualPipeV, {.pp = 2, .vpp = 2});
  add(ScheduleKind::DualPipeV, {.pp = 3, .vpp = 2}, {0, 1, 1, 1, 1, 0});
  add(ScheduleKind::DualPipeV, {.tp = 4, .pp = 2, .vpp = 2, .sp = true}, {1, 2, 1, 0});
  add(ScheduleKind::DualPipeV, {.tp = 2, .pp = 2, .vpp = 2, .dp = 2});
  // What no generator makes: a schedule from a file, in a V without split backwards.
  add(ScheduleKind::Custom, {.pp = 2, .vpp = 2, .dp = 4});
  plans.back().custom_schedule = {"0F0,0F1,3F0,3F1,3B0,3B1,0B0,0B1",
                                  "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1"};
  return plans;
}

std::string describe(const Plan& plan) {
  return fmt::format("{} {} mbs{} recompute{} layers[{}]", to_string(plan.parallel),
                     plan.schedule == ScheduleKind::GPipe
                         ? "gpipe"
                         : fmt::format("schedule {}", static_cast<int>(plan.schedule)),
                     plan.micro_batch_size, static_cast<int>(plan.recompute.kind),
                     plan.layers_per_stage.size());
}

bool agrees(const RunResult& run, const Reference& reference) {
  const GradientError error = compare_gradients(run, reference.run);
  if (!(error.relative <= 1e-5 && error.small_absolute <= 1e-11)) return false;
  for (std::size_t step = 0; step < kSteps; ++step)
    if (!(std::abs(run.losses[step] - reference.run.losses[step]) <= 4 * reference.spread[step]))
      return false;
  return true;
}

/// @param plans  of one model and workload
/// @param variants  how each of them is lowered; none: as by default
void check_parity(const std::vector<Plan>& plans, const std::vector<Variant>& variants = {}) {
  Fixture fixture;
  const models::ModelSpec& model = plans.front().model;
  const Reference reference = reference_of(fixture, plans.front());
  REQUIRE(reference.run.losses.back() < reference.run.losses.front());
  double worst = 0;
  int count = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Plan& plan = plans[i];
    const auto run = fixture.run(plan, {}, variants.empty() ? Variant{} : variants[i]);
    if (!run) continue;
    ++count;
    const GradientError error = compare_gradients(*run, reference.run);
    worst = std::max(worst, error.relative);
    INFO(model.name << ": plan " << i << ", " << describe(plan) << ", worst gradient "
                    << error.worst);
    CHECK(error.relative <= 1e-5);
    CHECK(error.small_absolute <= 1e-11);
    CHECK(run->gradient_norms.front() ==
          Approx(reference.run.gradient_norms.front()).epsilon(1e-6));
    for (std::size_t step = 0; step < kSteps; ++step) {
      INFO("step " << step << " loss " << run->losses[step] << " expected "
                   << reference.run.losses[step] << " spread " << reference.spread[step]);
      CHECK(std::abs(run->losses[step] - reference.run.losses[step]) <= 4 * reference.spread[step]);
    }
  }
  if (fixture.world->rank() == 0)
    std::cout << fmt::format("{}: {} plans, worst relative gradient error {:.2e}\n", model.name,
                             count, worst);
}

}  // namespace

TEST_CASE("every plan of a Llama-style model gives the gradients and losses of one rank",
          "[parity]") {
  check_parity(all_plans(llama_style()));
}

TEST_CASE("every plan of a GPT-2-style model gives the gradients and losses of one rank",
          "[parity]") {
  check_parity(all_plans(gpt2_style()));
}

namespace {

/// One plan per mesh; the recompute kinds take turns. Steps are small: over 8 ranks sums are taken
/// in orders that no micro-batch size of one rank tries, and large steps amplify what that changes.
std::vector<Plan> plans_of(const models::ModelSpec& model,
                           const std::vector<ParallelConfig>& meshes) {
  std::vector<Plan> plans;
  for (const ParallelConfig& parallel : meshes) {
    Plan plan = base_plan(model);
    plan.parallel = parallel;
    plan.workload.optimizer.learning_rate = 2e-3;
    plan.recompute.kind = static_cast<RecomputeKind>(plans.size() % 3);
    plans.push_back(plan);
  }
  return plans;
}

models::ModelSpec with_key_heads(models::ModelSpec model, int num_kv_heads) {
  model.name += " with few key heads";
  model.num_kv_heads = num_kv_heads;
  return model;
}

}  // namespace

TEST_CASE("key/value heads held by several ranks give the gradients and losses of one rank",
          "[parity]") {
  for (const models::ModelSpec& model :
       {with_key_heads(llama_style(), 2), with_key_heads(gpt2_style(), 2)})
    check_parity(plans_of(model, {{.tp = 4},
                                  {.tp = 8, .sp = true},
                                  {.tp = 4, .pp = 2, .sp = true},
                                  {.tp = 4, .dp = 2},
                                  {.tp = 8},
                                  {.tp = 4, .pp = 2}}));
}

TEST_CASE("norms of query and key heads give the gradients and losses of one rank", "[parity]") {
  models::ModelSpec model = with_key_heads(llama_style(), 2);
  model.name = "qwen3-style";
  model.qk_norm = true;
  check_parity(plans_of(model, {{.tp = 2},
                                {.tp = 2, .sp = true},
                                {.tp = 4, .pp = 2, .sp = true},
                                {.tp = 8},
                                {.pp = 2, .dp = 2}}));
}

TEST_CASE("every schedule with chunks or split backwards gives those of one rank, too",
          "[parity]") {
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()})
    check_parity(scheduled_plans(model));
}

namespace {

using Splits = std::map<std::string, models::Split>;

/// Gives linear layers other splits, by operation name.
Variant with_splits(const Splits& splits) {
  return {.profile = {}, .edit_graph = [splits](models::ModelGraph& graph) {
            std::vector<models::LayerGraph*> layers = {&graph.embedding, &graph.head};
            for (models::LayerGraph& kind : graph.kinds) layers.push_back(&kind);
            for (models::LayerGraph* layer : layers)
              for (models::Op& op : layer->ops)
                if (const auto found = splits.find(op.name); found != splits.end())
                  op.split = found->second;
          }};
}

/// The MLP's wide dimension is cut in two sections, each over all ranks.
Variant with_sections(models::Split down) {
  Variant variant = with_splits({{"mlp_down", down}});
  variant.edit_graph = [splits = variant.edit_graph](models::ModelGraph& graph) {
    splits(graph);
    for (models::LayerGraph& kind : graph.kinds)
      for (const models::Op& op : kind.ops) {
        if (op.name != "mlp_up") continue;
        for (const auto* list : {&op.parameters, &op.outputs})
          for (const models::TensorId id : *list) {
            models::Tensor& tensor = kind.tensors[static_cast<std::size_t>(id)];
            const std::int64_t wide = tensor.tensor_class == models::TensorClass::Parameter
                                          ? tensor.shape.front().count
                                          : tensor.shape.back().count;
            tensor.sections = {wide / 3, wide - wide / 3};
          }
      }
  };
  return variant;
}

void check_variants(const models::ModelSpec& model,
                    const std::vector<std::pair<ParallelConfig, Variant>>& cases) {
  std::vector<ParallelConfig> meshes;
  std::vector<Variant> variants;
  for (const auto& [mesh, variant] : cases) {
    meshes.push_back(mesh);
    variants.push_back(variant);
  }
  std::vector<Plan> plans = plans_of(model, meshes);
  for (Plan& plan : plans)  // what a weight gradient reads must live as long wherever it was moved
    if (plan.parallel.pp > 1) plan.schedule = ScheduleKind::ZbH1;
  check_parity(plans, variants);
}

}  // namespace

TEST_CASE("however the linear layers are split, gradients and losses are those of one rank",
          "[parity]") {
  using models::Split;
  // Outputs that are wanted whole, inputs that are not cut yet, and whole weights between cut ones.
  const Variant gathered =
      with_splits({{"attention_out", Split::Column}, {"mlp_down", Split::Column}});
  const Variant sliced =
      with_splits({{"qkv", Split::None}, {"gate_up", Split::None}, {"mlp_up", Split::None}});
  const Variant rows = with_splits({{"qkv", Split::Row},
                                    {"gate_up", Split::Row},
                                    {"mlp_up", Split::Row},
                                    {"lm_head", Split::Row}});
  const Variant whole = with_splits(
      {{"attention_out", Split::None}, {"mlp_down", Split::None}, {"lm_head", Split::None}});
  const Variant whole_logits = {.profile = {.vocab_parallel_loss = false}, .edit_graph = {}};

  check_variants(llama_style(), {{{.tp = 2}, gathered},
                                 {{.tp = 4, .sp = true}, gathered},
                                 {{.tp = 2, .pp = 2, .sp = true}, sliced},
                                 {{.tp = 4}, rows},
                                 {{.tp = 2, .sp = true}, whole},
                                 {{.tp = 4}, whole_logits}});
  models::ModelSpec gpt2 = gpt2_style();
  gpt2.tied_embeddings = false;  // the head may be split otherwise than the embedding
  check_variants(gpt2, {{{.tp = 2, .pp = 2, .sp = true}, gathered},
                        {{.tp = 4}, sliced},
                        {{.tp = 4, .sp = true}, rows},
                        {{.tp = 4}, with_sections(Split::Row)},
                        {{.tp = 2, .sp = true}, with_sections(Split::Column)},
                        {{.tp = 2, .sp = true}, whole_logits}});
}

// ---------------------------------------------------------------- seeded bugs

namespace {

struct SeededBug {
  std::string name;
  models::ModelSpec model;
  ParallelConfig parallel;
  Mutation mutate;
};

template <class Predicate>
void erase_instances(program::Program& program, Predicate predicate) {
  std::erase_if(program.instances, [&](const program::OperationInstance& instance) {
    return predicate(instance, program::operation_of(program, instance));
  });
  program::link(program);
}

void skip_sequence_gradients(program::Program& program) {
  erase_instances(program, [](const auto&, const program::Operation& operation) {
    return operation.name == "sequence_gradients.all_reduce";
  });
}

void skip_copied_heads(program::Program& program) {
  erase_instances(program, [](const auto&, const program::Operation& operation) {
    return operation.name.ends_with(".copied_heads.all_reduce");
  });
}

void drop_last_microbatch(program::Program& program) {
  const int last = program.plan.num_microbatches() - 1;
  erase_instances(program, [last](const auto& instance, const program::Operation& operation) {
    return instance.microbatch == last && operation.phase == program::Phase::WeightGrad;
  });
}

void average_over_dp(program::Program& program) {
  for (program::Operation& operation : program.step_operations)
    if (auto* flat = std::get_if<program::FlatCollectiveOp>(&operation.work);
        flat != nullptr && flat->region == program::Region::Gradients &&
        flat->collective.group == program::Group::DpCp)
      flat->collective.reduce = program::ReduceOp::Avg;
}

/// The bias before the sum instead of after it.
void add_bias_on_every_rank(program::Program& program) {
  for (program::Block& block : program.blocks)
    for (std::size_t i = 0; i + 1 < block.forward.size(); ++i)
      if (block.forward[i].name == "mlp_down.all_reduce" &&
          block.forward[i + 1].name == "mlp_down.bias")
        std::swap(block.forward[i], block.forward[i + 1]);
  program::link(program);
}

/// Each rank normalizes over its own part of the vocabulary.
void do_not_gather_head(program::Program& program) {
  for (program::Block& block : program.blocks)
    for (program::Operation& operation : block.forward)
      if (operation.name == "loss.all_gather")
        std::get<program::CollectiveOp>(operation.work).group = program::Group::Embedding;
}

std::vector<SeededBug> seeded_bugs() {
  return {
      {"norm gradients not reduced under sp",
       llama_style(),
       {.tp = 2, .sp = true},
       skip_sequence_gradients},
      {"last micro-batch dropped", llama_style(), {.pp = 2}, drop_last_microbatch},
      {"mean of means", llama_style(), {.dp = 2}, average_over_dp},
      {"bias added tp times", gpt2_style(), {.tp = 2}, add_bias_on_every_rank},
      {"head not sharded", llama_style(), {.tp = 2}, do_not_gather_head},
      {"copied heads not summed", with_key_heads(llama_style(), 2), {.tp = 4}, skip_copied_heads}};
}

}  // namespace

TEST_CASE("each seeded bug breaks parity", "[parity]") {
  Fixture fixture;
  for (const SeededBug& bug : seeded_bugs()) {
    Plan plan = base_plan(bug.model);
    // Biases start at zero, so the bug in them only shows once they have moved: in the losses.
    plan.parallel = bug.parallel;
    const Reference reference = reference_of(fixture, plan);
    const auto right = fixture.run(plan);
    const auto wrong = fixture.run(plan, bug.mutate);
    INFO(bug.name);
    if (right) CHECK(agrees(*right, reference));
    if (wrong) CHECK_FALSE(agrees(*wrong, reference));
  }
}

// ---------------------------------------------------------------- bf16

namespace {

/// bf16 rounds to 8 significant bits: by at most u = 2^-8 of the value, and by about 0.4 u in the
/// root mean square. Between the loss and the weights of the first layer lie, of each layer, 11
/// tensors that the forward pass rounds (norms, projections, rotation, attention, activation, sums)
/// and as many gradients; a plan of tp ranks also rounds every partial sum before it is added: 4
/// times tp in a layer, two sums each way. Once an input differs in one bit, the two runs round
/// everything after it independently, so N tensors make a relative error of at most sqrt(2 N) 0.4
/// u: at most, for each changes only its branch, while the residual stream carries most of the
/// signal. Gradients themselves are summed in fp32: their reduction lengths add nothing.
double bf16_tolerance(const models::ModelSpec& model, int tp) {
  constexpr double kMeanRoundoff = 0.4 / 256;
  constexpr double kRoundedInALayer = 22;
  const double rounded = model.num_layers * (kRoundedInALayer + 4.0 * (tp > 1 ? tp : 0));
  return std::sqrt(2 * rounded) * kMeanRoundoff;
}

// Below this part of the global norm a gradient is mostly what cancellation left of it.
constexpr double kSmallInBf16 = 1e-2;

std::vector<Plan> bf16_plans(const models::ModelSpec& model) {
  std::vector<Plan> plans;
  for (const ParallelConfig& parallel :
       {ParallelConfig{.tp = 2}, ParallelConfig{.tp = 4}, ParallelConfig{.tp = 2, .sp = true},
        ParallelConfig{.pp = 2}, ParallelConfig{.pp = 4}, ParallelConfig{.dp = 2},
        ParallelConfig{.dp = 8}, ParallelConfig{.tp = 2, .pp = 2, .dp = 2, .sp = true}}) {
    Plan plan = base_plan(model);
    plan.workload.precision = DType::BF16;
    plan.parallel = parallel;
    plan.schedule = plans.size() % 2 == 0 ? ScheduleKind::OneFOneB : ScheduleKind::GPipe;
    if (parallel.pp == 1) plan.schedule = ScheduleKind::OneFOneB;
    plan.recompute.kind = static_cast<RecomputeKind>(plans.size() % 3);
    plans.push_back(plan);
  }
  return plans;
}

bool agrees_in_bf16(const RunResult& run, const RunResult& reference, double tolerance) {
  const GradientError error = compare_gradients(run, reference, kSmallInBf16);
  return error.relative <= tolerance && error.small_absolute <= tolerance * kSmallInBf16;
}

void check_bf16_parity(const models::ModelSpec& model) {
  Fixture fixture;
  Plan plan = base_plan(model);
  const RunResult fp32 = fixture.run_alone(plan);
  plan.workload.precision = DType::BF16;
  const RunResult reference = fixture.run_alone(plan);
  double worst = 0;
  for (const Plan& one : bf16_plans(model)) {
    const auto run = fixture.run(one);
    if (!run) continue;
    const double tolerance = bf16_tolerance(model, one.parallel.tp);
    const GradientError error = compare_gradients(*run, reference, kSmallInBf16);
    const GradientError to_fp32 = compare_gradients(*run, fp32, kSmallInBf16);
    worst = std::max(worst, error.relative / tolerance);
    INFO(model.name << ": " << describe(one) << ", worst gradient " << error.worst << " by "
                    << error.relative << ", against fp32 " << to_fp32.worst << " by "
                    << to_fp32.relative << ", tolerance " << tolerance);
    CHECK(error.relative <= tolerance);
    CHECK(error.small_absolute <= tolerance * kSmallInBf16);
    CHECK(to_fp32.relative <= tolerance);
    // The loss of untrained weights: logits below 1 in magnitude, averaged over 128 tokens.
    CHECK(run->losses.front() == Approx(reference.losses.front()).epsilon(1.0 / 256));
    CHECK(run->losses.back() < run->losses.front());
  }
  if (fixture.world->rank() == 0)
    std::cout << fmt::format("{} in bf16: worst gradient error {:.2f} of the tolerance\n",
                             model.name, worst);
}

}  // namespace

TEST_CASE("in bf16 plans give the gradients of one rank, to the format's precision", "[parity]") {
  check_bf16_parity(llama_style());
  check_bf16_parity(gpt2_style());
}

TEST_CASE("bf16's tolerance still catches seeded bugs", "[parity]") {
  Fixture fixture;
  for (const SeededBug& bug : seeded_bugs()) {
    if (bug.name == "bias added tp times") continue;  // seen in losses only
    Plan plan = base_plan(bug.model);
    plan.workload.precision = DType::BF16;
    const RunResult reference = fixture.run_alone(plan);
    plan.parallel = bug.parallel;
    const double tolerance = bf16_tolerance(bug.model, bug.parallel.tp);
    const auto right = fixture.run(plan);
    const auto wrong = fixture.run(plan, bug.mutate);
    INFO(bug.name);
    if (right) CHECK(agrees_in_bf16(*right, reference, tolerance));
    if (wrong) CHECK_FALSE(agrees_in_bf16(*wrong, reference, tolerance));
  }
}

TEST_CASE("two runs of a plan are bit-identical", "[parity]") {
  Fixture fixture;
  for (const ParallelConfig& parallel :
       {ParallelConfig{}, ParallelConfig{.tp = 2, .pp = 2, .dp = 2, .sp = true},
        ParallelConfig{.tp = 4, .dp = 2}, ParallelConfig{.pp = 4, .dp = 2},
        ParallelConfig{.dp = 8}}) {
    Plan plan = base_plan(gpt2_style());
    plan.parallel = parallel;
    const auto first = fixture.run(plan);
    const auto second = fixture.run(plan);
    if (!first) continue;
    INFO(describe(plan));
    CHECK(first->losses == second->losses);
    CHECK(first->gradients == second->gradients);
    CHECK(first->weights_hash == second->weights_hash);
  }
}

TEST_CASE("two runs of a schedule with chunks or split backwards are bit-identical", "[parity]") {
  Fixture fixture;
  for (const Plan& plan : scheduled_plans(gpt2_style())) {
    if (plan.parallel.world_size() < kMaxRanks) continue;
    const auto first = fixture.run(plan);
    const auto second = fixture.run(plan);
    if (!first) continue;
    INFO(describe(plan));
    CHECK(first->gradients == second->gradients);
    CHECK(first->weights_hash == second->weights_hash);
  }
}

TEST_CASE("recomputation changes no bit", "[parity]") {
  Fixture fixture;
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()})
    for (const bool sp : {false, true}) {
      Plan plan = base_plan(model);
      plan.parallel = {.tp = 2, .pp = 2, .sp = sp};
      const auto kept = fixture.run(plan);
      for (const RecomputeKind kind : {RecomputeKind::Selective, RecomputeKind::Full}) {
        plan.recompute.kind = kind;
        const auto recomputed = fixture.run(plan);
        if (!kept) continue;
        INFO(describe(plan));
        CHECK(kept->gradients == recomputed->gradients);
        CHECK(kept->weights_hash == recomputed->weights_hash);
      }
    }
}

}  // namespace meshplan::test
