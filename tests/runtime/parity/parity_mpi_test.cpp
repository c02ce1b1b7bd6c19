// The test that everything rests on: any valid plan gives the same losses and gradients as one
// rank.
#include <catch2/catch.hpp>
#include <cmath>
#include <fmt/format.h>
#include <iostream>
#include <map>
#include <numeric>

#include "runtime/parity/parity_fixture.hpp"
#include "runtime/parity/parity_techniques.hpp"

namespace meshplan::test::parity_plans {
namespace {

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
  add(ScheduleKind::OverlappedOneFOneB, {.pp = 1, .dp = 2});
  add(ScheduleKind::OverlappedOneFOneB, {.tp = 2, .pp = 2, .dp = 2, .sp = true});
  add(ScheduleKind::OverlappedOneFOneB, {.tp = 2, .pp = 2, .vpp = 2});
  add(ScheduleKind::OverlappedOneFOneB, {.pp = 3, .vpp = 2}, {0, 1, 1, 1, 1, 0});
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

/// @param plans  of one model and workload; in a quick run those that cover their techniques
/// @param variants  how each of them is lowered, then all are run; none: as by default
void check_parity(const std::vector<Plan>& plans, const std::vector<Variant>& variants = {}) {
  Fixture fixture;
  const models::ModelSpec& model = plans.front().model;
  const Reference reference = reference_of(fixture, plans.front());
  REQUIRE(reference.run.losses.back() < reference.run.losses.front());
  double worst = 0;
  int count = 0;
  std::vector<std::size_t> chosen(plans.size());
  std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  if (variants.empty()) chosen = plans_to_run(plans);
  for (const std::size_t i : chosen) {
    const Plan& plan = plans[i];
    const auto run = fixture.run(plan, {}, variants.empty() ? Variant{} : variants[i]);
    if (!run) continue;
    ++count;
    const GradientError error = compare_gradients(*run, reference.run);
    worst = std::max(worst, error.relative);
    if (fixture.world->rank() == 0) record_parity("dense", plan, error.relative);
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
            std::vector<models::LayerGraph*> layers = {&graph.embedding, &graph.ending};
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

}  // namespace meshplan::test::parity_plans
