// Optimizer state, weights and activations in host memory: the same bits, in another place.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "program/memory/offload.hpp"
#include "program/memory/offloaded_activations.hpp"
#include "runtime/parity/parity_job.hpp"
#include "runtime/parity/parity_models.hpp"

namespace meshplan::test::parity_offload {
namespace {

using program::OptimizerKind;
using program::Program;
using program::Region;
using program::StepOp;
using program::StepWork;

Plan plan_of(const models::ModelSpec& model, const ParallelConfig& parallel, DType precision,
             int zero_stage = 0) {
  Plan plan = parity_plan(model, parallel);
  plan.workload.precision = precision;
  plan.zero_stage = zero_stage;
  plan.bucket_bytes = 16 << 10;  // many pieces
  return plan;
}

std::vector<Plan> plans() {
  std::vector<Plan> all = {plan_of(llama_style(), {}, DType::F32),
                           plan_of(llama_style(), {.dp = 2}, DType::BF16),
                           plan_of(llama_style(), {.dp = 4}, DType::BF16, 1),
                           plan_of(llama_style(), {.dp = 2}, DType::F32, 2),
                           plan_of(llama_style(), {.dp = 4}, DType::BF16, 3),
                           plan_of(gpt2_style(), {.tp = 2, .pp = 2, .sp = true}, DType::BF16),
                           plan_of(deepseek_style(), {.dp = 4, .ep = 2}, DType::BF16, 1),
                           plan_of(deepseek_style(), {.pp = 2, .dp = 2, .ep = 2}, DType::BF16)};
  all.push_back(plan_of(llama_style(), {.dp = 4}, DType::BF16, 2));
  all.back().zero_shard_group = 2;
  all.push_back(plan_of(llama_style(), {.pp = 2, .dp = 2}, DType::F32));
  all.back().workload.optimizer.kind = OptimizerKind::Sgd;
  all.back().schedule = ScheduleKind::ZbH1;
  all.push_back(plan_of(llama_style(), {.dp = 2}, DType::BF16));
  all.back().compression.kind = program::CompressionKind::Int8;
  return all;
}

std::string describe(const Plan& plan) {
  return plan.model.name + " " + to_string(plan.parallel) + " zero " +
         std::to_string(plan.zero_stage);
}

std::int64_t bytes_of(const Program& program, Region region) {
  return program.memory.regions[static_cast<std::size_t>(region)].bytes();
}

}  // namespace

TEST_CASE("offloaded optimizer state gives the same bits", "[parity][offload]") {
  ParityJob job{.steps = 3};
  for (Plan plan : plans()) {
    INFO(describe(plan));
    const auto on_device = job.run(plan);
    plan.offload_optimizer = true;
    const auto on_host = job.run(plan);
    if (!on_device) continue;
    CHECK(on_host->losses == on_device->losses);
    CHECK(on_host->gradient_norms == on_device->gradient_norms);
    CHECK(on_host->weights == on_device->weights);
    CHECK(on_host->weights_hash == on_device->weights_hash);
  }
}

TEST_CASE("an update on another piece's state is seen", "[parity][offload]") {
  ParityJob job{.steps = 3};
  Plan plan = plan_of(llama_style(), {.dp = 2}, DType::BF16);
  plan.offload_optimizer = true;
  const auto right = job.run(plan);
  const auto wrong_slot = job.run(plan, [](Program& program) {
    for (auto& instance : program.instances) {
      const auto* step = std::get_if<StepOp>(&operation_of(program, instance).work);
      if (step != nullptr && step->work == StepWork::StoreState) instance.gradient_slot ^= 1;
    }
  });
  if (!right) return;
  CHECK(wrong_slot->weights != right->weights);
}

TEST_CASE("offloaded weights give the same bits", "[parity][offload]") {
  ParityJob job{.steps = 3};
  std::vector<Plan> all = {plan_of(llama_style(), {.dp = 4}, DType::F32, 3),
                           plan_of(llama_style(), {.dp = 2}, DType::BF16, 3),
                           plan_of(gpt2_style(), {.tp = 2, .dp = 2, .sp = true}, DType::BF16, 3),
                           plan_of(gpt2_style(), {.pp = 2, .dp = 2}, DType::F32, 3),
                           plan_of(deepseek_style(), {.dp = 4, .ep = 2}, DType::BF16, 3)};
  all.push_back(plan_of(llama_style(), {.dp = 4}, DType::BF16, 3));
  all.back().zero_shard_group = 2;
  all.push_back(plan_of(llama_style(), {.pp = 2, .dp = 2}, DType::BF16, 3));
  all.back().frozen = {"embedding", "layers.0"};
  all.back().offload_activations = 1;
  // Divided and whole ones, where the embedding is tied.
  all.push_back(plan_of(gpt2_style(), {.pp = 2, .dp = 2}, DType::BF16, 3));
  all.back().frozen = {"embedding", "layers.1", "*.mlp"};
  all.push_back(plan_of(mixtral_style(), {.dp = 4, .ep = 2}, DType::F32, 3));
  all.back().frozen = {"*.experts", "layers.0"};
  for (Plan plan : all) {
    INFO(describe(plan));
    plan.offload_optimizer = plan.offload_parameters = true;
    const auto on_host = job.run(plan);
    plan.offload_optimizer = plan.offload_parameters = false;
    plan.offload_activations = 0;
    const auto on_device = job.run(plan);
    if (!on_device) continue;
    CHECK(on_host->losses == on_device->losses);
    CHECK(on_host->gradient_norms == on_device->gradient_norms);
    // What a rank does not own is gathered into other memory.
    CHECK(on_host->weights == on_device->weights);
  }
}

TEST_CASE("weights that do not come from the host are seen", "[parity][offload]") {
  ParityJob job{.steps = 3};
  Plan plan = plan_of(llama_style(), {.dp = 2}, DType::BF16, 3);
  plan.offload_optimizer = plan.offload_parameters = true;
  const auto right = job.run(plan);
  const auto wrong_slot = job.run(plan, [](Program& program) {
    for (auto& instance : program.instances) {
      const auto* step = std::get_if<StepOp>(&operation_of(program, instance).work);
      if (step != nullptr && step->work == StepWork::FetchWeights) instance.weight_slot ^= 1;
    }
  });
  if (!right) return;
  CHECK(wrong_slot->weights != right->weights);
}

namespace {

std::vector<Plan> plans_with_activations() {
  std::vector<Plan> all = {
      plan_of(llama_style(), {}, DType::F32),
      plan_of(llama_style(), {.tp = 2, .dp = 2, .sp = true}, DType::BF16, 1),
      plan_of(gpt2_style(), {.tp = 2, .pp = 2, .sp = true}, DType::BF16),
      plan_of(llama_style(), {.dp = 2}, DType::F32, 2),
      plan_of(llama_style(), {.pp = 2, .dp = 2}, DType::BF16, 3),
      plan_of(llama_style(), {.cp = 2, .pp = 2}, DType::BF16),
  };
  all.back().context_parallel = ContextMethod::Ring;
  all.push_back(plan_of(llama_style(), {.pp = 2, .vpp = 2}, DType::BF16));
  all.back().schedule = ScheduleKind::Interleaved;
  all.push_back(plan_of(gpt2_style(), {.pp = 2, .dp = 2}, DType::F32));
  all.back().schedule = ScheduleKind::GPipe;
  all.push_back(plan_of(llama_style(), {.pp = 2}, DType::BF16));
  all.back().frozen = {"embedding", "layers.0"};
  for (const RecomputeKind kind : {RecomputeKind::Selective, RecomputeKind::Full}) {
    all.push_back(plan_of(llama_style(), {.pp = 2}, DType::BF16));
    all.back().recompute.kind = kind;
    all.back().offload_optimizer = true;
  }
  return all;
}

}  // namespace

TEST_CASE("offloaded activations give the same bits", "[parity][offload]") {
  ParityJob job{.steps = 3};
  for (Plan plan : plans_with_activations()) {
    const auto on_device = job.run(plan);
    const int most = std::ranges::max(program::resolved_layers_per_stage(plan));
    for (const int layers : {1, most}) {
      plan.offload_activations = layers;
      INFO(describe(plan) << ", " << layers << " layers");
      const auto on_host = job.run(plan);
      if (!on_device) continue;
      CHECK(on_host->losses == on_device->losses);
      CHECK(on_host->gradient_norms == on_device->gradient_norms);
      CHECK(on_host->weights_hash == on_device->weights_hash);
    }
  }
}

TEST_CASE("a layer's backward on another one's activations is seen", "[parity][offload]") {
  ParityJob job{.steps = 3};
  Plan plan = plan_of(llama_style(), {.dp = 2}, DType::F32);
  plan.offload_activations = 4;
  const auto right = job.run(plan);
  const auto wrong_slot = job.run(plan, [](Program& program) {
    for (auto& instance : program.instances) {
      const auto* step = std::get_if<StepOp>(&operation_of(program, instance).work);
      if (step != nullptr && step->work == StepWork::FetchActivations)
        instance.staged_slot = (instance.staged_slot + 1) % program::kStagedLayers;
    }
  });
  if (!right) return;
  CHECK(wrong_slot->weights != right->weights);
}

TEST_CASE("offloading moves master weights and moments out of the device's memory",
          "[program][offload]") {
  for (Plan plan : plans())
    for (int stage = 0; stage < plan.parallel.pp; ++stage) {
      plan.offload_optimizer = false;
      const Program plain = program::lower(plan, stage);
      plan.offload_optimizer = true;
      const Program offloaded = program::lower(plan, stage);
      INFO(describe(plan) << " stage " << stage);
      const std::int64_t state = bytes_of(plain, Region::MasterWeights) +
                                 bytes_of(plain, Region::Moment1) +
                                 bytes_of(plain, Region::Moment2);
      const std::int64_t slots = bytes_of(offloaded, Region::OptimizerStaging);
      CHECK(plain.memory.host_bytes() == 0);
      CHECK(offloaded.memory.host_bytes() == state);
      CHECK(offloaded.memory.total_bytes() == plain.memory.total_bytes() - state + slots);
      // Two slots of what an update works on at once.
      std::int64_t most = 0;
      for (const program::Operation& operation : offloaded.step_operations) {
        const auto* step = std::get_if<StepOp>(&operation.work);
        if (step == nullptr || step->work != StepWork::FetchState) continue;
        const program::FlatRange owned =
            step->bucket ? program::owned_range(
                               offloaded.buckets[static_cast<std::size_t>(*step->bucket)], {})
                         : step->range;
        most = std::max(most, std::min(owned.size(), step->range.size()));
      }
      const auto arrays = std::ssize(program::offloaded_regions(plan));
      CHECK(slots >= 2 * arrays * most * size_of(DType::F32));
    }
}

}  // namespace meshplan::test::parity_offload
